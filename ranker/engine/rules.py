"""What may not be ranked high though its score is: echoes, repeats, and more of the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ranker.types import Context, Vectors

_ECHO_SHARE = 0.8


def words_of(text: str) -> frozenset[str]:
    """The words of a text, without case and punctuation."""
    kept = (char if char.isalnum() or char == "'" else " " for char in text.casefold())
    return frozenset("".join(kept).split())


def is_echo(words: frozenset[str], turns: Sequence[frozenset[str]]) -> bool:
    """Whether a reply with these words repeats a turn: 80 % or more of all words of the two are shared.

    This also keeps a reply from being given twice in a conversation, since replies given become turns.
    """
    return any(bool(turn) and len(words & turn) >= _ECHO_SHARE * len(words | turn) for turn in turns)


def turn_words(context: Context) -> list[frozenset[str]]:
    return [words_of(turn) for turn in context.turns]


def diversify(scores: NDArray[np.float32], vectors: Vectors, k: int, diversity: float) -> list[int]:
    """Maximal marginal relevance: positions of `k` rows, chosen one by one for the largest
    (1 - diversity) x score - diversity x (likeness to the most alike row chosen before).

    `scores` (n,) are best first; `vectors` (n, dim) unit rows; `diversity` in [0, 1].
    """
    left = list(range(len(scores)))
    chosen: list[int] = []
    alike = np.zeros(len(scores), dtype=np.float32)
    while left and len(chosen) < k:
        gains = (1.0 - diversity) * scores[left] - diversity * alike[left]
        best = left.pop(int(np.argmax(gains)))
        chosen.append(best)
        likeness = vectors @ vectors[best]
        alike = likeness if len(chosen) == 1 else np.maximum(alike, likeness)
    return chosen
