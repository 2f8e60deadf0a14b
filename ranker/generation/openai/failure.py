"""What went wrong in one attempt, before it becomes a GenerationError."""

from __future__ import annotations


class EndpointFailure(Exception):
    """`reason` goes on from "the endpoint at HOST ...". It never holds the key."""

    def __init__(
        self, reason: str, *, may_pass: bool = False, retry_after: float | None = None, fix: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_pass = may_pass
        """Whether another attempt may succeed."""
        self.retry_after = retry_after
        """Seconds that the endpoint asks to wait before it."""
        self.fix = fix
