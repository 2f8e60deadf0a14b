"""Text as it may be stored, and contexts as they may be given."""

from __future__ import annotations

from typing import Any

import pytest

from ranker.errors import InputError
from ranker.types import Candidate, Context, Label, Ranked, Ranking, clean_text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  I got\tthe \n job!  ", "I got the job!"),
        ("a\x00b\x1b[31m", "a b [31m"),
        ("e\u0301te\u0301", "été"),
        ("no\u00a0break\u2028line", "no break line"),
        ("half \ud83d of it", "half ? of it"),
        ("co\u00adoperate\ufeff \u200fnow", "cooperate now"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f", "👩\u200d👩\u200d👧 ❤\ufe0f"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("🙂", "🙂"),
        ("", ""),
        (" \t\n", ""),
        ("\u200d \ufe0f", ""),
        ("\u200b\u2060", ""),
    ],
)
def test_clean_text(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    assert clean_text(cleaned) == cleaned
    cleaned.encode("utf-8")


def test_a_very_long_text_is_kept_whole() -> None:
    assert clean_text("word " * 20_000) == ("word " * 20_000).strip()
    assert len(clean_text("\x00é" * 50_000)) == 99_999


def test_a_context_from_what_people_have() -> None:
    assert Context.of(" Hi \n there ").turns == ("Hi there",)
    assert Context.of(["Hi", " ", "Hello"]).turns == ("Hi", "Hello")
    assert Context.of(turn for turn in ("a", "b")).last == "b"
    context = Context.of("x")
    assert Context.of(context) is context
    assert Context.of("x") == context
    assert hash(Context.of("x")) == hash(context)


@pytest.mark.parametrize("value", ["", "  ", [], ["", "\n"], "\u200d"])
def test_an_empty_context(value: str | list[str]) -> None:
    with pytest.raises(InputError, match=r"the context is empty\. Give at least one turn"):
        Context.of(value)


@pytest.mark.parametrize("value", [None, 5, b"bytes", [None], ["a", 1]])
def test_a_context_that_is_no_text(value: Any) -> None:
    with pytest.raises(InputError, match="must be text"):
        Context.of(value)


def test_no_turn_of_a_context_is_empty() -> None:
    for turns in ((), ("",), ("a", "")):
        with pytest.raises(InputError):
            Context(turns)


def test_the_first_label_of_a_kind() -> None:
    labels = (Label("intent", "asking"), Label("emotion", "sad", 0.7), Label("emotion", "angry", 0.2))
    candidate = Candidate("1", "Oh no", "ed", labels)
    assert candidate.label("emotion") == "sad"
    assert candidate.label("intent") == "asking"
    assert candidate.label("topic") is None


def test_a_ranking_is_a_sequence() -> None:
    places = tuple(Ranked(Candidate(str(n), "x", "ed"), 1.0 - n / 10, n + 1) for n in range(3))
    ranking = Ranking(Context.of("Hi"), places, 0.5)
    assert len(ranking) == 3
    assert list(ranking) == list(places)
    assert ranking[0] is places[0]
    assert ranking[-2:] == places[1:]
    assert places[1] in ranking
    assert ranking == Ranking(Context.of("Hi"), places, 0.5)
