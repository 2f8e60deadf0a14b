from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ranker.errors import InputError
from ranker.labels import BlackBoxLabeler
from ranker.types import Label, Labeler


def by_length(texts: Sequence[str]) -> list[Mapping[str, float]]:
    return [{"short": 0.75, "long": 0.25} if len(text) < 5 else {"long": 1.0} for text in texts]


def test_a_callable_labels() -> None:
    labeler: Labeler = BlackBoxLabeler("topic", by_length)
    assert labeler.predict(["hi", "a long text"], k=2) == [
        (Label("topic", "short", 0.75), Label("topic", "long", 0.25)),
        (Label("topic", "long", 1.0),),
    ]
    assert labeler.predict([], k=1) == []


def test_equal_probabilities_are_ordered_by_name() -> None:
    labeler = BlackBoxLabeler("topic", lambda texts: [{"b": 0.5, "a": 0.5} for _ in texts])
    assert [label.name for label in labeler.predict(["x"], k=2)[0]] == ["a", "b"]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [{}, {}],
        ["sad"],
        [{"sad": 1.5}],
        [{"sad": float("nan")}],
        [{"sad": "much"}],
        [{3: 0.5}],
        [{"": 0.5}],
    ],
)
def test_a_wrong_answer_is_refused(answer: Any) -> None:
    with pytest.raises(InputError):
        BlackBoxLabeler("emotion", lambda texts: answer).predict(["text"])


def test_a_failure_is_one_line() -> None:
    def broken(texts: Sequence[str]) -> list[Mapping[str, float]]:
        raise RuntimeError("no model\nhere")

    with pytest.raises(InputError, match="RuntimeError: no model here"):
        BlackBoxLabeler("emotion", broken).predict(["text"])


def test_a_wrong_k_is_refused() -> None:
    with pytest.raises(InputError, match="k must be"):
        BlackBoxLabeler("emotion", by_length).predict(["x"], k=0)
