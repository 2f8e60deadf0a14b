"""An encoder without weights, for tests, docs and machines without a model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ranker.encoders.layout import CONTEXT_WINDOW, candidate_text, turn_text
from ranker.errors import ConfigError
from ranker.types import Calibration, Context, Progress, Vectors

_MAX_CHARACTERS = 3200
_WORD = re.compile(r"\w+|[^\w\s]+")
_GRAM = 3


class HashingEncoder:
    """Signed hashing of words and character trigrams: texts that share words and word parts get near vectors.

    The same on every platform and in every process. A turn counts half as much as the one after it.
    """

    def __init__(self, dim: int = 256) -> None:
        if dim < 1:
            raise ConfigError(f"the dimension must be at least 1, not {dim}")
        self._dim = dim

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def fingerprint(self) -> str:
        return f"hashing-1-{self._dim}"

    @property
    def calibration(self) -> Calibration | None:
        return None

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        rows = np.zeros((len(contexts), self._dim))
        for row, context in enumerate(contexts):
            for age, turn in enumerate(reversed(context.turns[-CONTEXT_WINDOW:])):
                rows[row] += self._features(turn_text(turn, _MAX_CHARACTERS)) * 0.5**age
            _report(progress, row + 1, len(contexts))
        return _unit(rows)

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        rows = np.zeros((len(texts), self._dim))
        for row, text in enumerate(texts):
            rows[row] = self._features(candidate_text(text, _MAX_CHARACTERS))
            _report(progress, row + 1, len(texts))
        return _unit(rows)

    def _features(self, text: str) -> NDArray[np.float64]:
        """Summed signs of the text's features; exact, as all weights are powers of two."""
        row = np.zeros(self._dim)
        for feature, weight in _weighted_features(text):
            number = _hash(feature)
            row[(number >> 1) % self._dim] += weight if number & 1 else -weight
        return row


def _weighted_features(text: str) -> Iterator[tuple[str, float]]:
    for word in _WORD.findall(text.casefold()):
        yield word, 1.0
        marked = f"<{word}>"
        for start in range(len(marked) - _GRAM + 1):
            yield marked[start : start + _GRAM], 0.25


@lru_cache(maxsize=1 << 16)
def _hash(feature: str) -> int:
    # Not hash(), which differs from process to process.
    return int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")


def _unit(rows: NDArray[np.float64]) -> Vectors:
    """Rows of unit length; a row that cancelled out to zero points along the first axis."""
    norms = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    rows[norms[:, 0] == 0.0, 0] = 1.0
    return (rows / np.where(norms == 0.0, 1.0, norms)).astype(np.float32)


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None and (done % 256 == 0 or done == total):
        progress(done, total)
