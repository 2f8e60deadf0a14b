"""A kernel machine on hashed n-grams and an encoder's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError
from ranker.safety.ngrams import ngrams
from ranker.types import Vectors

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LineClassifier:
    """Scores texts from their plain words and their vectors by the encoder whose fingerprint is `encoder`.

    The score of output j is the sum of `word_weights[:, j]` at the buckets of the n-grams, plus `bias[j]`,
    plus the sum over the support s of `support_weights[s, j] * exp(gamma * (cosine(vector, s) - 1))`. The
    first output says whether a text is one of those looked for at all; the others, if any, of which kind.
    """

    outputs: tuple[str, ...]
    encoder: str
    gamma: float
    support: Vectors
    support_weights: Floats
    word_weights: Floats
    bias: Floats

    @property
    def dim(self) -> int:
        return int(self.support.shape[1])

    def scores(self, words: Sequence[str], vectors: Vectors) -> Floats:
        """Log odds (texts, outputs). Raises InputError for vectors that are not (texts, dim)."""
        if vectors.shape != (len(words), self.dim):
            raise InputError(f"the classifier reads vectors {(len(words), self.dim)}, not {vectors.shape}")
        near = np.exp(self.gamma * (vectors @ self.support.T - 1.0))
        found = near @ self.support_weights + self.bias
        for row, text in enumerate(words):
            buckets, values = ngrams(text)
            found[row] += values @ self.word_weights[buckets]
        return np.asarray(found, np.float32)

    def probabilities(self, words: Sequence[str], vectors: Vectors) -> list[float]:
        """That each text is one of those looked for."""
        return [float(value) for value in logistic(self.scores(words, vectors)[:, 0])]


def logistic(scores: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -60.0, 60.0))), np.float32)
