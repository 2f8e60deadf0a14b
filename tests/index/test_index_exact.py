"""The oracle itself is checked by hand and against a full sort."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ranker.errors import InputError
from ranker.index import ExactIndex
from ranker.index import exact as exact_module
from ranker.types import Vectors

MakeVectors = Callable[..., Vectors]


def test_hand_computed_scores() -> None:
    index = ExactIndex(np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32))
    hits = index.search(np.array([[0, 1], [1, 0]], np.float32), 2)
    assert hits.ids.tolist() == [[1, 2], [0, 2]]
    np.testing.assert_allclose(hits.scores, [[1, 0.8], [1, 0.6]], atol=1e-6)


def test_equal_scores_come_lower_row_first() -> None:
    vectors = np.tile(np.array([[1, 0]], np.float32), (50, 1))
    vectors[7] = [0, 1]
    hits = ExactIndex(vectors).search(np.array([[1, 0]], np.float32), 9)
    assert hits.ids.tolist() == [[0, 1, 2, 3, 4, 5, 6, 8, 9]]


@pytest.mark.parametrize("share", [None, 0.02, 0.5, 1.0])
def test_blocks_agree_with_a_full_sort(
    monkeypatch: pytest.MonkeyPatch, make_vectors: MakeVectors, share: float | None
) -> None:
    monkeypatch.setattr(exact_module, "_BLOCK", 64)
    vectors = make_vectors(1000)
    vectors[500:520] = vectors[:20]
    queries = make_vectors(7, seed=1)
    allowed = None if share is None else np.random.default_rng(2).random(1000) < share
    hits = ExactIndex(vectors).search(queries, 30, allowed)
    scores = queries @ vectors.T
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    width = 30 if allowed is None else min(30, int(allowed.sum()))
    expected = -np.sort(-scores, axis=1)[:, :width]
    assert hits.ids.shape == (7, width)
    np.testing.assert_allclose(hits.scores, expected, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(scores, hits.ids, 1), hits.scores, atol=1e-6)
    assert all(len(set(row)) == width for row in hits.ids.tolist())


def test_more_hits_than_rows_and_no_rows(make_vectors: MakeVectors) -> None:
    vectors = make_vectors(5)
    index = ExactIndex(vectors)
    assert sorted(index.search(vectors[:1], 50).ids[0].tolist()) == [0, 1, 2, 3, 4]
    assert index.search(vectors[:2], 3, np.zeros(5, np.bool_)).ids.shape == (2, 0)
    assert ExactIndex(vectors[:0]).search(vectors[:2], 3).scores.shape == (2, 0)
    assert index.search(vectors[:0], 3).ids.shape == (0, 3)


def test_what_cannot_be_searched(make_vectors: MakeVectors) -> None:
    vectors = make_vectors(5)
    index = ExactIndex(vectors)
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        index.search(vectors, 0)
    with pytest.raises(InputError, match=r"shape \(rows, 32\), not \(5, 16\)"):
        index.search(vectors[:, :16], 1)
    with pytest.raises(InputError, match="not finite"):
        index.search(np.full((1, 32), np.nan, np.float32), 1)
    with pytest.raises(InputError, match="mask of 5 booleans"):
        index.search(vectors, 1, np.ones(4, np.bool_))
