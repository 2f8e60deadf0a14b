"""Fitting the classifiers of safety to their lines, beside ordinary turns in which nothing is wrong.

The lines are hard cases only. Without ordinary turns a classifier would never learn what people mostly talk
about, and find a crisis in "Is that serious, doctor?".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ranker.corpora import ReadReport, read_dialogues
from ranker.errors import NotFoundError, TrainingError
from ranker.home import Home
from ranker.pools import list_cards, raw_data
from ranker.safety.classifier import Floats, LineClassifier, logistic
from ranker.safety.labelled import LABELS, Line, Task, texts_of
from ranker.safety.patterns import breach, stated
from ranker.safety.profanity import is_profane
from ranker.safety.training import FitSettings, cross_validated, fit, task_words
from ranker.types import Context, Encoder, Progress, Vectors

ORDINARY = 1_800
"""How many ordinary turns stand beside the lines."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A task's classifier, and what one that had not seen them made of its lines: probabilities (lines,)."""

    model: LineClassifier
    held_out: Floats
    settings: FitSettings


def ordinary_turns(home: Home, seed: int = 0) -> list[str]:
    """The turns in the pools' samples, each once, in a seeded order. Raises TrainingError without any."""
    turns: dict[str, None] = {}
    for card in list_cards(home):
        try:
            raw = raw_data(card, home, sample=True)
        except NotFoundError:
            continue  # a pool without a sample
        for dialogue in read_dialogues(card.reader, raw.path, card.split, ReadReport()):
            turns |= dict.fromkeys(turn.text for turn in dialogue.turns)
    if not turns:
        raise TrainingError(f"no pool of {home.root} has a sample to take ordinary turns from")
    return random.Random(seed).sample(list(turns), len(turns))


def harmless(task: Task, turns: Sequence[str], most: int = ORDINARY) -> list[str]:
    """The first of the turns in which no pattern of the task finds anything."""
    found: list[str] = []
    for turn, words in zip(turns, task_words(task, turns), strict=True):
        if not (stated(words) if task == "crisis" else is_profane(turn) or breach(words)):
            found.append(turn)
        if len(found) == most:
            break
    return found


def train(
    task: Task,
    lines: Sequence[Line],
    ordinary: Sequence[str],
    encoder: Encoder,
    settings: FitSettings,
    progress: Progress | None = None,
) -> Trained:
    """Fit a task's classifier to its lines and to ordinary turns. It repeats itself."""
    texts = [*texts_of(lines), *ordinary]
    labels = [line.label for line in lines] + [LABELS[task][-1]] * len(ordinary)
    words = task_words(task, texts)
    vectors = _encode(task, texts, encoder, progress)
    model = fit(task, words, vectors, labels, encoder.fingerprint, settings)
    held_out = cross_validated(task, words, vectors, labels, settings)
    return Trained(model, logistic(held_out[: len(lines)]), settings)


def _encode(task: Task, texts: Sequence[str], encoder: Encoder, progress: Progress | None) -> Vectors:
    """As contexts where a user says them, as candidates where a reply does."""
    if task == "crisis":
        return encoder.encode_contexts([Context.of(text) for text in texts], progress)
    return encoder.encode_candidates(texts, progress)
