"""How well labelers do: accuracy within the first k, F1, calibration, confusion; and rows to measure on."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranker.corpora import Pair, ReadReport, pairs, read_dialogues
from ranker.corpora.files import lines
from ranker.errors import CorpusError, InputError, MissingExtraError
from ranker.labels import RESPONSE_INTENTS, check_names
from ranker.storage import write_bytes
from ranker.types import Context, Label

_BINS = 10
_ED = "empathetic_dialogues"
_TABLE_HEADER = ["split", "conv_id", "utterance_idx", "role", "label"]


@dataclass(frozen=True, slots=True)
class Averaged:
    """Precision, recall and F1 averaged over the labels, each within 0..1."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Predictions against the truth. Accuracies are per cent.

    `macro` averages over the labels that occur among the truths or predictions, `weighted` by their number of
    truths. `calibration_error` is the mean distance of probability and accuracy over ten bins, within 0..1.
    `confusion` is (truth, prediction), in the order of `names`; rows without a prediction are not in it.
    """

    rows: int
    top_1: float
    top_3: float
    top_5: float
    macro: Averaged
    weighted: Averaged
    calibration_error: float
    names: tuple[str, ...]
    confusion: NDArray[np.int64]


def measure(
    predicted: Sequence[tuple[Label, ...]], truths: Sequence[str], names: Sequence[str]
) -> LabelFigures:
    """Figures of predictions, most probable first, for rows whose true labels are `truths`.

    Ask the labeler for five labels or more. A row without a prediction counts as wrong. Raises InputError
    where there is nothing to measure or a label is none of `names`.
    """
    if not truths or len(predicted) != len(truths):
        raise InputError(f"{len(predicted)} predictions cannot be measured against {len(truths)} truths")
    place = {name: number for number, name in enumerate(names)}
    unknown = {*truths, *(label.name for labels in predicted for label in labels)} - set(place)
    if unknown:
        raise InputError(f"the label {min(unknown)!r} is not one of the {len(place)} that are measured")
    confusion = np.zeros((len(place), len(place)), np.int64)
    truth_counts = np.zeros(len(place), np.int64)
    for labels, truth in zip(predicted, truths, strict=True):
        truth_counts[place[truth]] += 1
        if labels:
            confusion[place[truth], place[labels[0].name]] += 1
    macro, weighted = _averages(confusion, truth_counts)
    return LabelFigures(
        rows=len(truths),
        top_1=_within(predicted, truths, 1),
        top_3=_within(predicted, truths, 3),
        top_5=_within(predicted, truths, 5),
        macro=macro,
        weighted=weighted,
        calibration_error=_calibration_error(predicted, truths),
        names=tuple(names),
        confusion=confusion,
    )


def plot_confusion(figures: LabelFigures, path: Path, title: str) -> None:
    """Write the confusion matrix as a PNG, each row in per cent of its truths. Raises MissingExtraError."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError.of("plotting", "train") from error
    totals = np.maximum(figures.confusion.sum(axis=1, keepdims=True), 1)
    side = 3 + 0.25 * len(figures.names)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(100 * figures.confusion / totals, cmap="magma_r", vmin=0, vmax=100)
    axes.set_xticks(range(len(figures.names)), figures.names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(figures.names)), figures.names, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"{title}: {figures.rows:,} rows, top-1 {figures.top_1:.1f} %", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8, label="% of the true label's rows")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_bytes(path, buffer.getvalue())


class EmotionRows(NamedTuple):
    """Texts with their conversation's emotion: a situation each, and a context before each listener reply."""

    situations: list[tuple[str, str]]
    contexts: list[tuple[Context, str]]


def emotion_rows(path: Path, split: str) -> EmotionRows:
    """The rows of EmpatheticDialogues. Raises CorpusError."""
    dialogues = list(read_dialogues(_ED, path, split, ReadReport()))
    situations = [
        (dialogue.situation, dialogue.labels[0].name)
        for dialogue in dialogues
        if dialogue.situation and dialogue.labels
    ]
    contexts = [
        (pair.context, pair.labels[0].name) for pair in pairs(dialogues, listener_only=True) if pair.labels
    ]
    check_names("emotion", {name for _, name in situations})
    return EmotionRows(situations, contexts)


def intent_rows(dialogues: Path, table: Path, split: str) -> list[tuple[str, str]]:
    """Utterances of EmpatheticDialogues with their label in a table (split, conv_id, utterance_idx, ...).

    `table` is the .tsv(.gz) or its folder. A conversation whose utterances the table does not number alike is
    left out. Raises CorpusError where none is left.
    """
    labels = _intent_table(table, split)
    found = []
    for dialogue in read_dialogues(_ED, dialogues, split, ReadReport()):
        numbered = labels.get(dialogue.id, {})
        if sorted(number for number in numbered if number > 0) == list(range(1, len(dialogue.turns) + 1)):
            found += [(turn.text, numbered[number]) for number, turn in enumerate(dialogue.turns, start=1)]
    if not found:
        raise CorpusError(
            f"{table} labels no utterance of {dialogues}", fix="Check that both are of one corpus"
        )
    check_names("intent", {name for _, name in found})
    return found


def response_intent_rows(dialogues: Path, table: Path, split: str) -> list[tuple[Pair, str]]:
    """The listener's replies of EmpatheticDialogues, each with the context before it and its label in a table
    like that of `intent_rows`. Raises CorpusError where none is left."""
    labels = _intent_table(table, split)
    found = [
        (pair, name)
        for pair in pairs(read_dialogues(_ED, dialogues, split, ReadReport()), listener_only=True)
        if (name := labels.get(pair.provenance.conversation, {}).get(pair.provenance.turn))
    ]
    if not found:
        raise CorpusError(f"{table} labels no reply of {dialogues}", fix="Check that both are of one corpus")
    check_names("intent", {name for _, name in found})
    return found


def manual_intent_rows(folder: Path) -> list[tuple[str, str]]:
    """Hand-labelled lines: `manual/<intent>.txt` in the folder, of the response intents; may be none."""
    found = []
    for name in RESPONSE_INTENTS:
        file = folder / "manual" / f"{name}.txt"
        if file.is_file():
            found += [(line.strip(), name) for line in lines(file, ReadReport()) if line.strip()]
    return found


def _intent_table(path: Path, split: str) -> dict[str, dict[int, str]]:
    """Label by conversation and utterance number (0: the situation)."""
    file = path
    if path.is_dir():
        found = sorted(path.glob("*_labels.tsv*"))
        if not found:
            raise CorpusError(f"{path} holds no *_labels.tsv file")
        file = found[0]
    labels: dict[str, dict[int, str]] = defaultdict(dict)
    for line in lines(file, ReadReport()):
        fields = line.split("\t")
        if fields == _TABLE_HEADER:
            continue
        if len(fields) != len(_TABLE_HEADER) or not fields[2].isdecimal():
            raise CorpusError(f"{file} has a row without the columns {', '.join(_TABLE_HEADER)}")
        if fields[0] == split:
            labels[fields[1]][int(fields[2])] = fields[4]
    return labels


def _within(predicted: Sequence[tuple[Label, ...]], truths: Sequence[str], k: int) -> float:
    right = sum(
        any(label.name == truth for label in labels[:k])
        for labels, truth in zip(predicted, truths, strict=True)
    )
    return 100.0 * right / len(truths)


def _averages(confusion: NDArray[np.int64], truths: NDArray[np.int64]) -> tuple[Averaged, Averaged]:
    right = np.diag(confusion).astype(float)
    predictions = confusion.sum(axis=0)
    precision = right / np.maximum(predictions, 1)
    recall = right / np.maximum(truths, 1)
    both = precision + recall
    f1 = 2 * precision * recall / np.where(both > 0, both, 1.0)
    occurs = (truths + predictions) > 0
    return (
        Averaged(*(float(values[occurs].mean()) for values in (precision, recall, f1))),
        Averaged(*(float(np.average(values, weights=truths)) for values in (precision, recall, f1))),
    )


def _calibration_error(predicted: Sequence[tuple[Label, ...]], truths: Sequence[str]) -> float:
    sure = np.asarray([labels[0].probability if labels else 0.0 for labels in predicted])
    right = np.asarray(
        [bool(labels) and labels[0].name == truth for labels, truth in zip(predicted, truths, strict=True)]
    )
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs(float(sure[bins == one].sum() - right[bins == one].sum())) for one in range(_BINS)]
    return sum(gaps) / len(truths)
