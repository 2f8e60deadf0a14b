"""Does it help to expect an intent? P@1,100 with and without the response-intent predictor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.evaluation.precision import Precision, precision
from ranker.types import Label, Vectors

WEIGHTS = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Of log p(intent) beside a cosine; 0: the encoder alone."""


@dataclass(frozen=True, slots=True)
class Reweighting:
    """P@1,100 of the encoder's scores plus `weight` x log p(intent of the candidate | context)."""

    weight: float
    precision: Precision


def reweighted(
    contexts: Vectors,
    responses: Vectors,
    texts: Sequence[str],
    probabilities: NDArray[np.float32],
    intents: Sequence[tuple[Label, ...]],
    names: Sequence[str],
    weights: Sequence[float] = WEIGHTS,
) -> list[Reweighting]:
    """The figures for each weight, over the same groups.

    `probabilities` (rows, names) are of the intent of the reply to each context, `intents` the labels
    predicted of each response; a response without one counts as of average likelihood.
    """
    likely = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    average = np.full((len(likely), 1), -np.log(len(names)), np.float32)
    likely = np.concatenate([likely, average], axis=1)
    chosen = np.zeros_like(likely)
    place = {name: number for number, name in enumerate(names)}
    for row, labels in enumerate(intents):
        chosen[row, place.get(labels[0].name, len(names)) if labels else len(names)] = 1.0
    found = []
    for weight in weights:
        # One inner product of longer vectors is the cosine plus the weighted log-likelihood.
        wide = np.concatenate([contexts, np.float32(weight) * likely], axis=1)
        figures = precision(wide, np.concatenate([responses, chosen], axis=1), texts)
        found.append(Reweighting(weight, figures))
    return found
