"""What an index is made of, in numbers, and which kind suits which size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from ranker.errors import NotFoundError

Kind = Literal["exact", "flat", "hnsw", "sq8", "ivfpq"]
KINDS: tuple[Kind, ...] = get_args(Kind)

APPROXIMATE: frozenset[Kind] = frozenset({"hnsw", "sq8", "ivfpq"})
"""The kinds that may miss a row, and whose recall is therefore measured."""

SMALL = 20_000
"""Up to this many rows every row is scored, in a few milliseconds at most."""


@dataclass(frozen=True, slots=True)
class IndexParameters:
    """Everything that decides what an index answers; fields of other kinds stay 0."""

    kind: Kind
    lists: int = 0
    """ivfpq: clusters of rows."""
    probes: int = 0
    """ivfpq: clusters looked into by one search."""
    links: int = 0
    """hnsw: neighbours of a row in the graph."""
    breadth: int = 0
    """hnsw: rows kept in view while a search walks the graph (efSearch)."""
    refine: int = 0
    """hnsw, sq8, ivfpq: rows scored exactly for each hit asked for."""


def as_kind(name: str) -> Kind:
    """The kind called `name`. Raises NotFoundError, with the nearest one, where there is none."""
    for kind in KINDS:
        if kind == name:
            return kind
    raise NotFoundError.of("kind of index", name, KINDS)


def choose_kind(count: int, dim: int) -> tuple[Kind, str]:
    """The kind for `count` rows of `dim` numbers, and the reason as a sentence."""
    if count <= SMALL:
        return "exact", f"{count:,} candidates are few enough to score every one of them."
    if dim % 2:
        # Product quantisation splits a vector into equal parts of at least two numbers.
        return "hnsw", f"{count:,} candidates need an approximate search, and {dim} dimensions suit a graph."
    return "ivfpq", f"{count:,} candidates are searched fastest by cluster, on compressed vectors."


def default_parameters(kind: Kind, count: int) -> IndexParameters:
    """The structure that suits the size; the effort of a search is tuned once it is built."""
    if kind == "ivfpq":
        return IndexParameters(kind, lists=_lists(count))
    if kind == "hnsw":
        return IndexParameters(kind, links=32)
    return IndexParameters(kind)


def _lists(count: int) -> int:
    """About twice the square root of the rows, as a power of two: 512 at 40k, 1024 at 200k, 2048 at 1M."""
    return int(2 ** round(math.log2(2 * math.sqrt(max(1, count)))))
