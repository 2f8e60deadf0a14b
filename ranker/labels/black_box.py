"""Any classifier of the user's as a labeler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ranker.errors import InputError
from ranker.labels.fasttext import check_texts
from ranker.types import Label, LabelKind

Classifier = Callable[[Sequence[str]], Sequence[Mapping[str, float]]]
"""Takes texts and returns, for each, the probability of every label that it thinks of."""


class BlackBoxLabeler:
    """Predicts with a Python callable, whose answers are checked."""

    def __init__(self, kind: LabelKind, classify: Classifier) -> None:
        self.kind = kind
        self._classify = classify

    def predict(self, texts: Sequence[str], k: int = 1) -> list[tuple[Label, ...]]:
        """Up to k labels of each text, most probable first, then by name.

        Raises InputError where the callable fails, answers for another number of texts, or gives something
        that is not a name with a probability.
        """
        check_texts(texts)
        if k < 1:
            raise InputError(f"k must be at least 1, not {k}")
        try:
            answers = list(self._classify(texts))
        except Exception as error:
            raise InputError(f"the {self.kind} classifier failed: {type(error).__name__}: {error}") from error
        if len(answers) != len(texts):
            raise InputError(f"the {self.kind} classifier gave {len(answers)} answers for {len(texts)} texts")
        return [self._best(answer, k) for answer in answers]

    def _best(self, answer: Mapping[str, float], k: int) -> tuple[Label, ...]:
        if not isinstance(answer, Mapping):
            raise InputError(
                f"the {self.kind} classifier gave {type(answer).__name__}, not a probability for each name"
            )
        labels = [Label(self.kind, name, _probability(name, value)) for name, value in answer.items()]
        return tuple(sorted(labels, key=lambda label: (-label.probability, label.name))[:k])


def _probability(name: object, value: object) -> float:
    try:
        found = float(value)  # type: ignore[arg-type]  # whatever it is, the next line says what is wrong
    except (TypeError, ValueError):
        found = math.nan
    if not isinstance(name, str) or not name or not 0.0 <= found <= 1.0:
        raise InputError(f"{name!r}: {value!r} is not a name with a probability within 0 and 1")
    return found
