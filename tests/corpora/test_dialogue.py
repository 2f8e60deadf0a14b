"""Pairs and candidates from dialogues."""

from __future__ import annotations

import pytest

from ranker.corpora import Dialogue, Turn, candidates, pairs
from ranker.types import Label, Provenance, Utterances

SAD = Label("emotion", "sad")
ASK = Label("intent", "question")
TALK = Dialogue(
    "corpus",
    "c1",
    tuple(Turn(text, place % 2, (ASK,) if text == "f" else ()) for place, text in enumerate("abcdef")),
    labels=(SAD,),
)


def test_the_window_keeps_the_newest_turns() -> None:
    found = list(pairs([TALK], window=2))
    assert [("".join(pair.context.turns), pair.response) for pair in found] == [
        ("a", "b"),
        ("ab", "c"),
        ("bc", "d"),
        ("cd", "e"),
        ("de", "f"),
    ]
    assert found[-1].labels == (ASK, SAD)
    assert found[-1].provenance == Provenance("corpus", "c1", 6)


def test_the_default_window_is_four_turns() -> None:
    assert list(pairs([TALK]))[-1].context.turns == ("b", "c", "d", "e")


def test_listener_only() -> None:
    assert [pair.response for pair in pairs([TALK], listener_only=True)] == ["b", "d", "f"]


def test_a_window_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        next(pairs([TALK], window=0))


def test_candidates_by_role() -> None:
    def chosen(role: Utterances) -> str:
        return "".join(made.text for made in candidates([TALK], pool="p", utterances=role))

    assert chosen("all") == "abcdef"
    assert chosen("response") == "bcdef"
    assert chosen("listener") == "bdf"
    last = list(candidates([TALK], pool="p", utterances="all"))[-1]
    assert (last.id, last.pool, last.label("emotion")) == ("p:c1:6", "p", "sad")
    assert last.provenance == Provenance("corpus", "c1", 6)
