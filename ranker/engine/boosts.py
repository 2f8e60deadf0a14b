"""Steering a ranking: candidates with wanted labels, or with likely intents, are moved up, not filtered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.bundle import Bundle
from ranker.errors import InputError
from ranker.labels import VectorHead
from ranker.types import Hits, Vectors

_DEEPER = 4


@dataclass(frozen=True, slots=True)
class Boosts:
    """What is added to the scores of candidates before they are ranked; nothing by default.

    A candidate gets `weight` where its emotion is among `emotions`, and `weight` where its intent is among
    `intents`. Scores are cosines, whose best ten mostly lie within 0.1: a weight of 0.1 is strong.
    """

    emotions: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    weight: float = 0.1
    response_intent: float = 0.0
    """Factor of log p(the candidate's intent | context), by the response-intent predictor."""

    def __post_init__(self) -> None:
        for value in (self.weight, self.response_intent):
            if not 0.0 <= value <= 10.0:
                raise InputError(f"the weight of a boost must be within 0 and 10, not {value}")

    @property
    def has_labels(self) -> bool:
        return self.weight > 0 and bool(self.emotions or self.intents)


@dataclass(frozen=True, slots=True)
class RowBonus:
    """What one context adds to the scores of a bundle's rows; `highest` is the most that a row can get."""

    by_row: NDArray[np.float32] | None = None
    intents: NDArray[np.int16] | None = None
    by_intent: NDArray[np.float32] | None = None
    highest: float = 0.0

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows,)."""
        found = np.zeros(len(rows), np.float32)
        if self.by_row is not None:
            found += self.by_row[rows]
        if self.intents is not None and self.by_intent is not None:
            found += self.by_intent[self.intents[rows]]
        return found


def label_bonus(bundle: Bundle, boosts: Boosts) -> NDArray[np.float32] | None:
    """What the wanted labels add to each row of a bundle; None: nothing."""
    if not boosts.has_labels:
        return None
    found = np.zeros(bundle.rows, np.float32)
    for wanted in (
        bundle.mask(emotions=boosts.emotions) if boosts.emotions else None,
        bundle.mask(intents=boosts.intents) if boosts.intents else None,
    ):
        if wanted is not None:
            found += np.float32(boosts.weight) * wanted
    return found


def intent_numbers(bundle: Bundle, names: Sequence[str]) -> NDArray[np.int16]:
    """For each row, the place of its intent among `names`; the number of names where it has none of them."""
    found = np.full(bundle.rows, len(names), np.int16)
    known = set(bundle.labels("intent"))
    for number, name in enumerate(names):
        if name in known and (mask := bundle.mask(intents=[name])) is not None:
            found[mask] = number
    return found


def intent_bonus(head: VectorHead, vector: Vectors, weight: float) -> NDArray[np.float32]:
    """What a context's likely intents add, by intent; the last place is for candidates without one, which
    count as of average likelihood. `vector` is (1, dim)."""
    likely = np.log(np.maximum(head.probabilities(vector)[0], np.finfo(np.float32).tiny))
    return np.asarray(weight * np.append(likely, -np.log(len(likely))), np.float32)


def boosted_search(
    bundle: Bundle, vector: Vectors, k: int, allowed: NDArray[np.bool_] | None, bonus: RowBonus | None
) -> tuple[Hits, NDArray[np.float32]]:
    """The k best rows of a bundle once the bonus is added, with their boosted scores, and the bonus (1, k').

    As deep as needed: no row beyond those fetched could still come among the k best.
    """
    depth = k
    while True:
        hits = bundle.search(vector, depth, allowed)
        if bonus is None:
            return hits, np.zeros_like(hits.scores)
        added = bonus.of(hits.ids[0])
        scores = hits.scores[0] + added
        best = np.argsort(-scores, kind="stable")[:k]
        exhausted = len(scores) < depth
        if exhausted or scores[best[-1]] >= hits.scores[0, -1] + bonus.highest:
            return Hits(scores[None, best], hits.ids[:, best]), added[None, best]
        depth *= _DEEPER
