"""Measuring encoders the way the papers do, on any corpus. Needs an `Encoder`, not torch."""
