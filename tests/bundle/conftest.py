"""A small bundle, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ranker.bundle import Bundle, PoolNote, write_bundle
from ranker.types import Candidate, Label, Provenance, Vectors

POOLS = (
    PoolNote("ed", "Empathetic", "CC BY-NC 4.0", commercial_use=False, is_sample=False),
    PoolNote("own", "Our own", "CC0-1.0", commercial_use=True, is_sample=True),
)
EMOTIONS = ("joyful", "sad", "angry")


def _candidates(count: int, start: int = 0) -> list[Candidate]:
    """Even rows are of pool ed with an emotion and provenance, odd ones of pool own with an intent."""
    return [
        Candidate(
            f"c{row}",
            f"Reply number {row} – ça va? 🙂",
            "ed",
            (Label("emotion", EMOTIONS[row % 3]), Label("topic", "work", 0.5)),
            Provenance("ed", f"hit:{row}", 2),
        )
        if row % 2 == 0
        else Candidate(f"c{row}", f"Reply number {row}", "own", (Label("intent", "agreeing"),))
        for row in range(start, start + count)
    ]


def _vectors(count: int, dim: int = 16, seed: int = 0) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, dim))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@pytest.fixture
def make_candidates() -> Callable[..., list[Candidate]]:
    """(count, start=0) -> candidates."""
    return _candidates


@pytest.fixture
def make_vectors() -> Callable[..., Vectors]:
    """(count, dim=16, seed=0) -> unit vectors."""
    return _vectors


@pytest.fixture
def pools() -> Sequence[PoolNote]:
    return POOLS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / "ed"


@pytest.fixture
def write(root: Path) -> Callable[..., Bundle]:
    """write(count, kind=None, seed=0) -> the bundle now at `root`."""

    def write(count: int, kind: str | None = None, seed: int = 0) -> Bundle:
        return write_bundle(
            root,
            name="ed",
            candidates=_candidates(count),
            vectors=_vectors(count, seed=seed),
            encoder_name="hashing",
            encoder_fingerprint="hashing-16",
            pools=POOLS,
            kind=kind,
        )

    return write
