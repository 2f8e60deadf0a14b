"""P@1,100: can an encoder find the true response among 100?

The rows of a split are cut into groups of 100; within a group each context ranks the 100 responses. The rank
of the true response is 1 + the number of candidates with another text that score at least as high: a
candidate with the same text counts as correct, every other tie loses, so a constant scorer gets nothing. A
last group that is not complete is left out, and the number of rows left out is reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ranker.corpora import Pair
from ranker.errors import InputError
from ranker.types import Encoder, Progress, Vectors

GROUP = 100
Grouping = Literal["shuffled", "in_order", "inline"]
Ranks = NDArray[np.int64]

# 97.5 % points of Student's t for 1, 2, ... degrees of freedom; beyond them the normal one.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeded groupings with the 95 % interval of that mean (of the shuffles, not of the rows)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean, mean, mean)
        t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
        half = t * statistics.stdev(values) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)


@dataclass(frozen=True, slots=True)
class Precision:
    """Ranking of the true response within groups. Precisions are per cent, `mrr` is within 0..1."""

    grouping: Grouping
    p_at_1: Figure
    p_at_3: Figure
    p_at_10: Figure
    mrr: Figure
    mean_rank: Figure
    rows: int
    left_out: int
    seeds: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def group_ranks(contexts: Vectors, responses: Vectors, texts: NDArray[np.int64]) -> Ranks:
    """Ranks (groups, size) of the true responses, from 1.

    `contexts` and `responses` (groups, size, dim); `texts` (groups, size) numbers equal texts equally.
    """
    scores = np.matmul(contexts, responses.transpose(0, 2, 1))
    return true_ranks(scores, texts[:, :, None] == texts[:, None, :])


def true_ranks(scores: NDArray[np.float32], same: NDArray[np.bool_]) -> Ranks:
    """Ranks (...) from `scores` (..., candidates); `same` marks the candidates with the true text."""
    gold = np.where(same, scores, -np.inf).max(axis=-1, keepdims=True)
    ranks: Ranks = 1 + ((scores >= gold) & ~same).sum(axis=-1, dtype=np.int64)
    return ranks


def precision(
    contexts: Vectors, responses: Vectors, texts: Sequence[str], *, seeds: int = 10, shuffled: bool = True
) -> Precision:
    """P@k within groups of 100 rows: `responses[i]` encodes `texts[i]`, the reply to `contexts[i]`.

    `shuffled`: one grouping per seed 0..seeds-1; otherwise the rows' own order, once, which is harder where
    neighbours are of one conversation. Raises InputError below 100 rows.
    """
    count = len(texts)
    if count < GROUP:
        raise InputError(f"P@1,{GROUP} needs at least {GROUP} rows, not {count}")
    numbers = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)[1]
    whole = count // GROUP * GROUP
    rounds: list[Ranks] = []
    for seed in range(seeds if shuffled else 1):
        order = np.random.default_rng(seed).permutation(count) if shuffled else np.arange(count)
        rows = order[:whole].reshape(-1, GROUP)
        rounds.append(group_ranks(contexts[rows], responses[rows], numbers[rows]).ravel())
    return summarise(rounds, "shuffled" if shuffled else "in_order", left_out=count - whole)


def summarise(rounds: Sequence[Ranks], grouping: Grouping, *, left_out: int) -> Precision:
    """The figures of ranks, one array per grouping."""

    def within(k: int) -> Figure:
        return Figure.of([100 * float((ranks <= k).mean()) for ranks in rounds])

    return Precision(
        grouping=grouping,
        p_at_1=within(1),
        p_at_3=within(3),
        p_at_10=within(10),
        mrr=Figure.of([float((1 / ranks).mean()) for ranks in rounds]),
        mean_rank=Figure.of([float(ranks.mean()) for ranks in rounds]),
        rows=len(rounds[0]),
        left_out=left_out,
        seeds=len(rounds),
    )


def inline_precision(encoder: Encoder, pairs: Sequence[Pair]) -> Precision:
    """P@k among the candidates that the corpus itself gives for each row; rows without any are left out.

    The true response is put among them where it is missing. Raises InputError where no row has candidates.
    """
    chosen = [pair for pair in pairs if pair.candidates]
    if not chosen:
        raise InputError("no row has inline candidates")
    unique = sorted({text for pair in chosen for text in (*pair.candidates, pair.response)})
    place = {text: row for row, text in enumerate(unique)}
    vectors = encoder.encode_candidates(unique)
    contexts = encoder.encode_contexts([pair.context for pair in chosen])
    ranks = np.ones(len(chosen), np.int64)
    for row, pair in enumerate(chosen):
        others = [place[text] for text in pair.candidates if text != pair.response]
        gold = float(vectors[place[pair.response]] @ contexts[row])
        ranks[row] += int((vectors[others] @ contexts[row] >= gold).sum())
    return summarise([ranks], "inline", left_out=len(pairs) - len(chosen))


def encode_pairs(
    encoder: Encoder, pairs: Sequence[Pair], progress: Progress | None = None
) -> tuple[Vectors, Vectors]:
    """Vectors of contexts and of responses, row by row; each distinct response is encoded once."""
    unique = sorted({pair.response for pair in pairs})
    place = {text: row for row, text in enumerate(unique)}
    total = len(pairs) + len(unique)

    def later(done: int, of: int) -> None:
        if progress is not None:
            progress(len(pairs) + done, total)

    def first(done: int, of: int) -> None:
        if progress is not None:
            progress(done, total)

    contexts = encoder.encode_contexts([pair.context for pair in pairs], first)
    vectors = encoder.encode_candidates(unique, later)
    return contexts, vectors[[place[pair.response] for pair in pairs]]
