"""Words, pairs of words and pieces of words as hashed features: no vocabulary to keep."""

from __future__ import annotations

import zlib
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BUCKETS = 1 << 15
_PIECES = (3, 4)
_PIECE_WEIGHT = 0.5


def ngrams(words: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Buckets and values (features,) of plain words: single ones, neighbours, and pieces of 3 and 4 letters.

    The values are scaled to length 1; a bucket may come more than once. No words: no features.
    """
    tokens = words.split()
    if not tokens:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    bounded = ["<", *tokens, ">"]
    pairs = [_bucket(f"{left} {right}") for left, right in pairwise(bounded)]
    singles, pieces = zip(*map(_of_word, tokens), strict=True)
    whole = [*singles, *pairs]
    parts = [bucket for some in pieces for bucket in some]
    values = np.full(len(whole) + len(parts), _PIECE_WEIGHT, np.float32)
    values[: len(whole)] = 1.0
    return np.array(whole + parts, np.int64), values / np.linalg.norm(values)


@lru_cache(maxsize=16_384)
def _of_word(word: str) -> tuple[int, tuple[int, ...]]:
    """Bucket of a word and those of its pieces."""
    bounded = f"<{word}>"
    pieces = (bounded[at : at + size] for size in _PIECES for at in range(len(bounded) - size + 1))
    return _bucket(f"= {word}"), tuple(_bucket(f"~ {piece}") for piece in pieces)


def _bucket(feature: str) -> int:
    return zlib.crc32(feature.encode()) % BUCKETS
