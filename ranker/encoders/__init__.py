"""Encoders: contexts and candidates as unit vectors of one space."""

from ranker.encoders.hashing import HashingEncoder
from ranker.encoders.loading import load_encoder
from ranker.encoders.onnx import OnnxEncoder

__all__ = ["HashingEncoder", "OnnxEncoder", "load_encoder"]
