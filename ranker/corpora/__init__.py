"""Readers of raw corpora: files in, dialogues out, and from these pairs and candidates."""

from ranker.corpora.dialogue import (
    LISTENER,
    Dialogue,
    Pair,
    ReadReport,
    Turn,
    candidates,
    pairs,
)
from ranker.corpora.readers import READERS, SPLITS, check_raw, read_dialogues

__all__ = [
    "LISTENER",
    "READERS",
    "SPLITS",
    "Dialogue",
    "Pair",
    "ReadReport",
    "Turn",
    "candidates",
    "check_raw",
    "pairs",
    "read_dialogues",
]
