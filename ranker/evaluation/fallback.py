"""When is a generated reply better than the best retrieved one? The confidence that decides it, measured.

For held-out contexts whose true reply is known: the confidence of the best retrieved reply, and how like the
true reply are the retrieved and the generated one. Likeness is the cosine of sentence vectors, both encoded
as candidates; AVG BLEU over the words is a second opinion, since the encoder also chose what was retrieved.

A threshold t gives the generated reply to contexts of a confidence below t, and the retrieved one to others.
The chosen t has the best mean likeness on one half of the rows; this is where an isotonic fit of the
difference between the two changes its sign, so no smoothing is left to choose. What it gains is told of the
other half.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError, MissingExtraError
from ranker.storage import write_bytes
from ranker.types import Encoder

CRITERION = "cosine to the true reply, both encoded as candidates"
SECOND_OPINION = (
    "sentence BLEU, mean of BLEU-1 to BLEU-4, tokenisation 13a, lower-cased, exponential smoothing"
)
LEAST_ROWS = 20
_RESAMPLES = 1000
_BINS = 10

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """Row by row: the confidence of the best retrieved reply, its quality, and that of the generated one."""

    confidence: Floats
    retrieved: Floats
    generated: Floats

    def __post_init__(self) -> None:
        if not len(self.confidence) == len(self.retrieved) == len(self.generated):
            raise InputError("every row needs a confidence and two qualities")

    def rows(self, chosen: NDArray[np.int64]) -> Judged:
        return Judged(self.confidence[chosen], self.retrieved[chosen], self.generated[chosen])

    def given(self, threshold: float) -> Floats:
        """Quality (rows,) of the reply that is given with this threshold."""
        return np.where(self.confidence < threshold, self.generated, self.retrieved)


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold chosen on one half, and mean qualities on the other: of the retrieved replies, the
    generated ones, and those given. `gain` is over never falling back, with its 95 % bootstrap interval;
    `asked` is the share of contexts that the generator answers."""

    threshold: float
    retrieved: float
    generated: float
    given: float
    gain: float
    gain_low: float
    gain_high: float
    asked: float
    rows: int


@dataclass(frozen=True, slots=True)
class Point:
    """Rows of about the same confidence: mean qualities, each with its standard error."""

    confidence: float
    retrieved: float
    retrieved_error: float
    generated: float
    generated_error: float
    rows: int


def best_threshold(judged: Judged) -> float:
    """The threshold with the best mean quality; of several, the one that asks the generator least.

    0: never ask it; 1: always. Otherwise halfway between the confidences on both sides.
    """
    order = np.argsort(judged.confidence, kind="stable")
    confidence = judged.confidence[order]
    gains = np.concatenate([[0.0], np.cumsum((judged.generated - judged.retrieved)[order])])
    # Rows of one confidence stay together: a cut is where it changes, or at the ends.
    cuts = np.concatenate([[True], confidence[1:] > confidence[:-1], [True]])
    gains[~cuts] = -np.inf
    best = int(np.argmax(gains))
    if best in (0, len(confidence)):
        return 0.0 if best == 0 else 1.0
    return float((confidence[best - 1] + confidence[best]) / 2)


def choose(judged: Judged, seed: int = 0) -> Choice:
    """Choose on a random half, check on the other. Raises InputError where there are too few rows."""
    count = len(judged.confidence)
    if count < LEAST_ROWS:
        raise InputError(f"a threshold needs at least {LEAST_ROWS} rows, not {count}")
    random = np.random.default_rng(seed)
    order = random.permutation(count)
    threshold = best_threshold(judged.rows(order[: count // 2]))
    checked = judged.rows(order[count // 2 :])
    given = checked.given(threshold)
    gains = given - checked.retrieved
    resampled = gains[random.integers(len(gains), size=(_RESAMPLES, len(gains)))].mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Choice(
        threshold=threshold,
        retrieved=float(checked.retrieved.mean()),
        generated=float(checked.generated.mean()),
        given=float(given.mean()),
        gain=float(gains.mean()),
        gain_low=float(low),
        gain_high=float(high),
        asked=float((checked.confidence < threshold).mean()),
        rows=len(gains),
    )


def curve(judged: Judged, bins: int = _BINS) -> list[Point]:
    """Both qualities over confidence, in equally large bins."""
    order = np.argsort(judged.confidence, kind="stable")
    return [
        Point(
            confidence=float(judged.confidence[rows].mean()),
            retrieved=float(judged.retrieved[rows].mean()),
            retrieved_error=_standard_error(judged.retrieved[rows]),
            generated=float(judged.generated[rows].mean()),
            generated_error=_standard_error(judged.generated[rows]),
            rows=len(rows),
        )
        for rows in np.array_split(order, bins)
        if len(rows)
    ]


def likeness(encoder: Encoder, replies: Sequence[str], references: Sequence[str]) -> Floats:
    """Cosine (rows,) of each reply and its reference, both encoded as candidates."""
    found = encoder.encode_candidates(replies)
    wanted = encoder.encode_candidates(references)
    return np.asarray(np.einsum("ij,ij->i", found, wanted), dtype=np.float64)


def sentence_bleu(replies: Sequence[str], references: Sequence[str]) -> Floats:
    """Mean of BLEU-1 to BLEU-4 of each reply, within 0..1. Raises MissingExtraError without sacrebleu."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise MissingExtraError.of("BLEU", "train") from error
    orders = [
        BLEU(max_ngram_order=order, tokenize="13a", lowercase=True, smooth_method="exp", effective_order=True)
        for order in range(1, 5)
    ]
    return np.array(
        [
            sum(order.sentence_score(reply, [reference]).score for order in orders) / 400
            for reply, reference in zip(replies, references, strict=True)
        ],
        dtype=np.float64,
    )


def plot(judged: dict[str, Judged], chosen: float, path: Path, title: str) -> None:
    """Write both curves over confidence as a PNG, a panel for each criterion, the chosen threshold marked.

    Raises MissingExtraError without matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError.of("plotting", "train") from error
    figure = Figure(figsize=(5.5 * len(judged), 4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=10)
    for place, (criterion, rows) in enumerate(judged.items(), start=1):
        axes = figure.add_subplot(1, len(judged), place)
        points = curve(rows)
        across = [point.confidence for point in points]
        for name, colour, values, errors in (
            ("retrieved", "tab:blue", [p.retrieved for p in points], [p.retrieved_error for p in points]),
            ("generated", "tab:orange", [p.generated for p in points], [p.generated_error for p in points]),
        ):
            axes.errorbar(across, values, yerr=errors, label=name, color=colour, marker="o", capsize=3)
        axes.axvline(chosen, color="grey", linestyle="--", label=f"threshold {chosen:.3f}")
        axes.set_xlabel("confidence of the best retrieved reply")
        axes.set_ylabel(criterion)
        axes.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_bytes(path, buffer.getvalue())


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
