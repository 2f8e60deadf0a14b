"""Exact search in numpy: the oracle that every other index is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError
from ranker.index.parameters import IndexParameters
from ranker.types import Hits, Vectors

_BLOCK = 65_536
"""Rows scored at once: bounds the memory of a batch of queries against a million rows."""
_DENSE = 0.2
_ROUNDING = np.float32(1e-6)


class ExactIndex:
    """Scores every allowed row. Equal scores are ordered by row, lower first."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.parameters = IndexParameters("exact")

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def count(self) -> int:
        return int(self.vectors.shape[0])

    def search(self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None = None) -> Hits:
        """See VectorIndex.search. Raises InputError for k < 1 and for vectors of another shape."""
        check_search(queries, k, allowed, dim=self.dim, count=self.count)
        return exact_search(self.vectors, queries, k, allowed)


def exact_search(vectors: Vectors, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> Hits:
    """The k' = min(k, allowed rows) best rows of each query, every allowed row scored."""
    rows = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    contenders: list[list[NDArray[np.int64]]] = [[] for _ in queries]
    for start in range(0, len(vectors), _BLOCK):
        stop = min(start + _BLOCK, len(vectors))
        inside = rows[slice(*np.searchsorted(rows, (start, stop)))]
        if not inside.size:
            continue
        if inside.size > _DENSE * (stop - start):
            # Copying most rows costs more than scoring the few others as well.
            scores = (queries @ vectors[start:stop].T)[:, inside - start]
        else:
            scores = queries @ vectors[inside].T
        for place, row_scores in enumerate(scores):
            contenders[place].append(inside[_near_the_best(row_scores, k)])
    proposed = [np.concatenate(parts) if parts else rows for parts in contenders]
    return settle(vectors, queries, proposed, min(k, rows.size))


def settle(vectors: Vectors, queries: Vectors, proposed: Sequence[NDArray[np.int64]], k: int) -> Hits:
    """The k best of the rows proposed for each query (k of them at least), with exact scores.

    A score is computed in the same order of additions wherever its row lies and whatever else is searched, as
    matrix products do not: equal rows tie to the last bit, and every index returns the same number for a row.
    """
    hits = Hits(np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64))
    for place, (vector, ids) in enumerate(zip(queries, proposed, strict=True)):
        scores = np.einsum("rd,d->r", vectors[ids], vector)
        order = np.lexsort((ids, -scores))[:k]
        hits.scores[place], hits.ids[place] = scores[order], ids[order]
    return hits


def merged(found: Sequence[Hits], k: int) -> Hits:
    """The k best of several results for the same queries; equal scores by id, lower first."""
    scores, ids = np.hstack([hits.scores for hits in found]), np.hstack([hits.ids for hits in found])
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return Hits(np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1))


def _near_the_best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Places of the k best scores, and of those that only rounding keeps from them."""
    if k >= scores.size:
        return np.arange(scores.size)
    border = np.partition(scores, scores.size - k)[scores.size - k]
    return np.flatnonzero(scores >= border - _ROUNDING)


def check_search(
    queries: Vectors, k: int, allowed: NDArray[np.bool_] | None, *, dim: int, count: int
) -> None:
    """Raise InputError for what no index can search with."""
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise InputError(f"expected vectors of shape (rows, {dim}), not {queries.shape}")
    if not np.isfinite(queries).all():
        raise InputError("a vector holds a number that is not finite")
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.shape != (count,)):
        raise InputError(f"expected a mask of {count} booleans, not {allowed.shape} of {allowed.dtype}")
