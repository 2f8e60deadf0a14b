"""Retrieval from a whole pool: does the true response come up, and how like it is what comes up?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError, MissingExtraError
from ranker.types import Progress, Vectors

BLEU_SETUP = "sacrebleu corpus BLEU, tokenisation 13a, lower-cased, exponential smoothing"
_ROWS = 256


@dataclass(frozen=True, slots=True)
class Bleu:
    """BLEU-1 to BLEU-4 of the retrieved replies against the true ones, per cent, set up as `BLEU_SETUP`."""

    orders: tuple[float, float, float, float]

    @property
    def average(self) -> float:
        return sum(self.orders) / len(self.orders)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Recalls (per cent) of the true response in the pool with it added; BLEU of the pool's best reply."""

    recall_at_1: float
    recall_at_10: float
    recall_at_100: float
    median_rank: float
    bleu: Bleu
    rows: int
    pool: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bleu": {"average": self.bleu.average, "orders": list(self.bleu.orders)}}


def retrieval(
    contexts: Vectors,
    responses: Vectors,
    texts: Sequence[str],
    pool: Vectors,
    pool_texts: Sequence[str],
    progress: Progress | None = None,
) -> Retrieval:
    """Rank the pool for each context. `responses[i]` encodes `texts[i]`, the true reply to `contexts[i]`.

    The pool must come from training data: its best reply is compared with the true one. The rank of the true
    response counts pool candidates with another text that score at least as high. Raises InputError where
    there are no rows or no pool.
    """
    if not len(contexts) or not len(pool):
        raise InputError("retrieval needs at least one context and one candidate")
    ranks, best = pool_ranks(contexts, responses, texts, pool, pool_texts, progress)
    return Retrieval(
        recall_at_1=recall(ranks, 1),
        recall_at_10=recall(ranks, 10),
        recall_at_100=recall(ranks, 100),
        median_rank=float(np.median(ranks)),
        bleu=bleu([pool_texts[row] for row in best], texts),
        rows=len(texts),
        pool=len(pool_texts),
    )


def pool_ranks(
    contexts: Vectors,
    responses: Vectors,
    texts: Sequence[str],
    pool: Vectors,
    pool_texts: Sequence[str],
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks (rows,) of the true responses in pool + own response, and the row of the best pool candidate."""
    copies: dict[str, list[int]] = {}
    for row, text in enumerate(pool_texts):
        copies.setdefault(text, []).append(row)
    gold = np.einsum("ij,ij->i", contexts, responses)
    ranks = np.empty(len(texts), np.int64)
    best = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _ROWS):
        rows = slice(start, start + _ROWS)
        scores = contexts[rows] @ pool.T
        best[rows] = scores.argmax(axis=1)
        for place, text in enumerate(texts[rows]):
            same = copies.get(text, [])
            own = max(float(gold[start + place]), *scores[place, same].tolist(), -1.0)
            scores[place, same] = -np.inf
            ranks[start + place] = 1 + int((scores[place] >= own).sum())
        if progress is not None:
            progress(min(start + _ROWS, len(texts)), len(texts))
    return ranks, best


def recall(ranks: NDArray[np.int64], k: int) -> float:
    """Per cent of ranks within the first k."""
    return 100 * float((ranks <= k).mean())


def bleu(replies: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU-1 to BLEU-4 over all rows. Raises MissingExtraError without sacrebleu."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise MissingExtraError.of("BLEU", "train") from error
    one, two, three, four = (
        float(BLEU(max_ngram_order=order, tokenize="13a", lowercase=True, smooth_method="exp")
              .corpus_score(list(replies), [list(references)]).score)
        for order in range(1, 5)
    )  # fmt: skip
    return Bleu((one, two, three, four))
