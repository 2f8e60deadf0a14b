"""P@1,100 when a reranker orders the first places of the encoder's ranking anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.corpora import Pair
from ranker.errors import InputError
from ranker.evaluation.precision import GROUP, Precision, Ranks, encode_pairs, summarise, true_ranks
from ranker.types import Encoder, Progress, Reranker

TOP = 10


@dataclass(frozen=True, slots=True)
class Reranking:
    """The same groups ranked by the encoder alone (`before`) and with the first `top` reranked (`after`).

    `won` and `lost` count the rows whose first place became right, and wrong.
    """

    top: int
    before: Precision
    after: Precision
    won: int
    lost: int
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "top": self.top,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "won": self.won,
            "lost": self.lost,
            "interrupted": self.interrupted,
        }


def measure_reranking(
    reranker: Reranker,
    encoder: Encoder,
    pairs: Sequence[Pair],
    *,
    rows: int,
    top: int = TOP,
    seed: int = 0,
    encoding: Progress | None = None,
    scoring: Progress | None = None,
) -> Reranking:
    """Rank `rows` of the pairs, drawn and grouped by `seed`, in whole groups of 100.

    Ties are treated as in `precision`: with another text they lose, before and after. Ctrl-C ends it with the
    groups that are complete, if any is. Raises InputError below 100 rows.
    """
    count = min(rows, len(pairs))
    if count < GROUP:
        raise InputError(f"P@1,{GROUP} needs at least {GROUP} rows, not {count}")
    whole = count // GROUP * GROUP
    order = np.random.default_rng(seed).permutation(len(pairs))[:whole]
    chosen = [pairs[row] for row in order]
    contexts, responses = encode_pairs(encoder, chosen, encoding)
    before: list[Ranks] = []
    after: list[Ranks] = []
    interrupted = False
    try:
        for start in range(0, whole, GROUP):
            group = slice(start, start + GROUP)
            texts = [pair.response for pair in chosen[group]]
            numbers = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)[1]
            scores = contexts[group] @ responses[group].T
            same = numbers[:, None] == numbers
            ranks = true_ranks(scores, same)
            changed = ranks.copy()
            for place, pair in enumerate(chosen[group]):
                if ranks[place] <= top:  # otherwise the true response is not among those that are reranked
                    changed[place] = _rerank(reranker, pair, texts, scores[place], same[place], top)
                if scoring is not None:
                    scoring(start + place + 1, whole)
            before.append(ranks)
            after.append(changed)
    except KeyboardInterrupt:
        if not after:
            raise
        interrupted = True
    old, new = np.concatenate(before), np.concatenate(after)
    left_out = count - len(new)
    return Reranking(
        top=top,
        before=summarise([old], "shuffled", left_out=left_out),
        after=summarise([new], "shuffled", left_out=left_out),
        won=int(((old > 1) & (new == 1)).sum()),
        lost=int(((old == 1) & (new > 1)).sum()),
        interrupted=interrupted,
    )


def _rerank(
    reranker: Reranker,
    pair: Pair,
    texts: Sequence[str],
    scores: NDArray[np.float32],
    same: NDArray[np.bool_],
    top: int,
) -> int:
    """The rank of the true response among the first `top`, which it is one of."""
    first = np.lexsort((same, -scores))[:top]  # by score; among equals, the true response last
    found = np.asarray(reranker.score(pair.context, [texts[place] for place in first]), np.float32)
    return int(true_ranks(found, same[first]))
