"""Training dual encoders with in-batch negatives. Needs the extra `train`."""
