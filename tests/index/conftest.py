"""Vectors as encoders make them: clustered, unit length, some of them equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ranker.types import Vectors

MakeVectors = Callable[..., Vectors]


@pytest.fixture(scope="session")
def make_vectors() -> MakeVectors:
    """(rows, dim, seed) -> vectors around shared centres; a seed changes the rows, not the centres."""

    def make(rows: int, dim: int = 32, seed: int = 0) -> Vectors:
        centres = np.random.default_rng(99).standard_normal((40, dim))
        rng = np.random.default_rng(seed)
        vectors = centres[rng.integers(40, size=rows)] + 0.6 * rng.standard_normal((rows, dim))
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    return make
