"""Fitting a classifier to labelled lines: logistic regression in its dual form, by Newton's method, in numpy.

The lines are few and the features many, so the solution is sought as weights of the lines. The kernel of two
lines is the inner product of their n-grams plus a Gaussian of their vectors' distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranker.errors import TrainingError
from ranker.safety.classifier import Floats, LineClassifier
from ranker.safety.labelled import LABELS, Task
from ranker.safety.ngrams import BUCKETS, ngrams
from ranker.safety.patterns import without_idioms
from ranker.safety.wording import plain_words
from ranker.types import Vectors

_STEPS = 50
_CLOSE_ENOUGH = 1e-6

Matrix = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FitSettings:
    """`penalty` of the weights; `gamma` of the Gaussian, and its `vector_share` beside the n-grams' one."""

    penalty: float = 0.1
    gamma: float = 3.0
    vector_share: float = 3.0
    folds: int = 5
    seed: int = 0


def task_words(task: Task, texts: Sequence[str]) -> list[str]:
    """Texts as a task's classifier reads them."""
    plain = [plain_words(text) for text in texts]
    return [without_idioms(words) for words in plain] if task == "crisis" else plain


def fit(
    task: Task,
    words: Sequence[str],
    vectors: Vectors,
    labels: Sequence[str],
    encoder: str,
    settings: FitSettings,
) -> LineClassifier:
    """A classifier of lines: their words as `task_words` gives them, their vectors (lines, dim) by the
    encoder with this fingerprint, their labels. Raises TrainingError where there is nothing to tell apart."""
    kinds, wanted = _targets(task, labels)
    kernel = _kernel(words, vectors, settings)
    line_weights = np.zeros((len(words), 1 + len(kinds)))
    bias = np.zeros(1 + len(kinds))
    line_weights[:, 0], bias[0] = _solve(kernel, wanted, settings.penalty)
    rows = np.flatnonzero(wanted).tolist()
    for place, kind in enumerate(kinds, start=1):
        of_kind = np.array([labels[row] == kind for row in rows])
        line_weights[rows, place], bias[place] = _solve(kernel[np.ix_(rows, rows)], of_kind, settings.penalty)
    word_weights = np.zeros((BUCKETS, 1 + len(kinds)))
    for row, text in enumerate(words):
        buckets, values = ngrams(text)
        np.add.at(word_weights, buckets, values[:, None] * line_weights[row])
    return LineClassifier(
        (task, *kinds),
        encoder,
        settings.gamma,
        vectors,
        np.asarray(settings.vector_share * line_weights, np.float32),
        np.asarray(word_weights, np.float32),
        np.asarray(bias, np.float32),
    )


def cross_validated(
    task: Task, words: Sequence[str], vectors: Vectors, labels: Sequence[str], settings: FitSettings
) -> Floats:
    """Log odds (lines,) of each line by a classifier that was fitted without its part of the lines."""
    _, wanted = _targets(task, labels)
    kernel = _kernel(words, vectors, settings)
    order = np.random.default_rng(settings.seed).permutation(len(words))
    found = np.zeros(len(words))
    for fold in range(settings.folds):
        held = np.sort(order[fold :: settings.folds])
        rest = np.setdiff1d(order, held)
        weights, bias = _solve(kernel[np.ix_(rest, rest)], wanted[rest], settings.penalty)
        found[held] = kernel[np.ix_(held, rest)] @ weights + bias
    return np.asarray(found, np.float32)


def _targets(task: Task, labels: Sequence[str]) -> tuple[tuple[str, ...], Flags]:
    """The kinds to tell apart (none where there is but one), and which lines are of any."""
    *kinds, harmless = LABELS[task]
    missing = {*kinds, harmless} - set(labels)
    if missing:
        raise TrainingError(f"the {task} lines have none with the label {sorted(missing)[0]!r}")
    return tuple(kinds) if len(kinds) > 1 else (), np.array([label != harmless for label in labels])


def _kernel(words: Sequence[str], vectors: Vectors, settings: FitSettings) -> Matrix:
    """(lines, lines)."""
    if len(words) != len(vectors):
        raise TrainingError(f"{len(words)} lines with {len(vectors)} vectors cannot be trained on")
    places: dict[int, dict[int, float]] = {}
    for row, text in enumerate(words):
        for bucket, value in zip(*(part.tolist() for part in ngrams(text)), strict=True):
            column = places.setdefault(bucket, {})
            column[row] = column.get(row, 0.0) + value
    exact = vectors.astype(np.float64)
    kernel = settings.vector_share * np.exp(settings.gamma * (exact @ exact.T - 1.0))
    for column in places.values():
        rows, values = list(column), list(column.values())
        kernel[np.ix_(rows, rows)] += np.outer(values, values)
    return np.asarray(kernel)


def _solve(kernel: Matrix, wanted: Flags, penalty: float) -> tuple[Matrix, float]:
    """Weights (lines,) and the bias that make the lines likeliest, less the penalty: each step of Newton's
    method is a weighted least squares problem."""
    size = len(wanted)
    weights, bias = np.zeros(size), 0.0
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = kernel
    system[size, size] = 0.0
    diagonal = np.diag(kernel)
    for _ in range(_STEPS):
        scores = kernel @ weights + bias
        likely = 1.0 / (1.0 + np.exp(-scores))
        certainty = np.maximum(likely * (1.0 - likely), 1e-9)
        system[np.arange(size), np.arange(size)] = diagonal + penalty / certainty
        solved = np.linalg.solve(system, np.append(scores + (wanted - likely) / certainty, 0.0))
        change = float(np.abs(solved[:size] - weights).max())
        weights, bias = solved[:size], float(solved[size])
        if change < _CLOSE_ENOUGH:
            return weights, bias
    raise TrainingError("the safety classifier did not converge", fix="Try a larger penalty")
