"""Confidence: how often the first of a ranking is the true reply, given its score.

Held-out pairs are ranked in groups of 100, as for P@1,100. A logistic regression then maps the score of each
first place to the probability that it is the true reply. Half of the groups fit it, the others check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError
from ranker.evaluation.precision import GROUP
from ranker.types import Calibration, Vectors

_ROUNDS = 4
_BINS = 10
_RIDGE = 1e-3
_NEWTON_STEPS = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """`error` is the expected calibration error on the checked half, 0..1; `rows` the first places fitted."""

    calibration: Calibration
    error: float
    rows: int


def calibrate(contexts: Vectors, responses: Vectors, texts: Sequence[str]) -> Calibrated:
    """Fit and check a calibration: `responses[i]` encodes `texts[i]`, the reply to `contexts[i]`.

    Raises InputError below two groups of 100 rows.
    """
    if len(texts) < 2 * GROUP:
        raise InputError(f"calibration needs at least {2 * GROUP} pairs, not {len(texts)}")
    numbers = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)[1]
    half = len(texts) // 2 // GROUP * GROUP
    order = np.random.default_rng(0).permutation(len(texts))
    fitted, checked = order[:half], order[half : 2 * half]
    scores, hits = first_places(contexts, responses, numbers, fitted)
    calibration = fit_logistic(scores, hits)
    scores, hits = first_places(contexts, responses, numbers, checked)
    return Calibrated(calibration, calibration_error(calibration, scores, hits), len(fitted) * _ROUNDS)


def first_places(
    contexts: Vectors, responses: Vectors, numbers: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Scores of first places, and 1 where it is the true reply, over several groupings of `rows`."""
    scores: list[NDArray[np.float32]] = []
    hits: list[NDArray[np.bool_]] = []
    for seed in range(_ROUNDS):
        groups = np.random.default_rng(seed).permutation(rows).reshape(-1, GROUP)
        for group in groups:
            matrix = contexts[group] @ responses[group].T
            best = matrix.argmax(axis=1)
            scores.append(matrix.max(axis=1))
            hits.append(numbers[group][best] == numbers[group])
    return np.concatenate(scores).astype(np.float64), np.concatenate(hits).astype(np.float64)


def fit_logistic(scores: Floats, hits: Floats) -> Calibration:
    """Logistic regression of `hits` (0 or 1) on `scores`, by Newton's method with a slight ridge."""
    inputs = np.column_stack([scores, np.ones_like(scores)])
    weights = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -60, 60)))
        gradient = inputs.T @ (hits - chance) - _RIDGE * weights
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + _RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            break
    return Calibration(slope=float(weights[0]), intercept=float(weights[1]))


def calibration_error(calibration: Calibration, scores: Floats, hits: Floats) -> float:
    """Mean distance between confidence and share of hits, over ten equally large bins of confidence."""
    chance = np.array([calibration.probability(score) for score in scores])
    bins = np.array_split(np.argsort(chance), _BINS)
    gaps = [len(rows) * abs(chance[rows].mean() - hits[rows].mean()) for rows in bins if len(rows)]
    return float(sum(gaps) / len(scores))
