"""The parts of the generator `openai` that need no server: one utterance, and the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranker.generation.openai.budget import Budget
from ranker.generation.openai.utterance import Utterance, utterance


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  I am glad\n\nto hear it. ", "I am glad to hear it."),
        ('"I am glad."', "I am glad."),
        ("“I am glad.”\n", "I am glad."),
        ('"I am glad.', "I am glad."),
        ('"Never" is a long time.', '"Never" is a long time.'),
        ('He said "no".', 'He said "no".'),
        ("Assistant: I am glad.", "I am glad."),
        ("**Listener:** I am glad.", "I am glad."),
        ('AI : "I am glad."', "I am glad."),
        ("Bottle: green.", "Bottle: green."),
        ("I am glad.\nUser: And I?\nAssistant: Yes.", "I am glad."),
        ("I am glad.\n\n  **Speaker**: And I?", "I am glad."),
        ("Two things:\nyou and me", "Two things: you and me"),
        ("<think>They are glad.\nUser: hm</think>\n\nI am glad.", "I am glad."),
        ("<think>They are", ""),
        ("<thin ice>", "<thin ice>"),
        ("wow \ud83d\ude00 \ud83d!", "wow 😀 \ufffd!"),
        ("", ""),
        ("Reply:", ""),
    ],
)
def test_one_utterance(raw: str, expected: str) -> None:
    assert utterance(raw) == expected


parts = st.sampled_from(
    [
        *(
            "<think>",
            "</think>",
            "User:",
            "assistant",
            ":",
            "**",
            "AI",
            "\n",
            " ",
            '"',
            "“",
            "”",
            "I am",
            "glad.",
        ),
        *(
            "\ud83d",
            "\ude00",
            "e",
            "\u0301",
            "\u200d",
            "\u00ad",
            "\x00",
            "你好",
            "twelve words of it",
            "\r\n",
            "…",
        ),
    ]
)


@given(st.lists(st.one_of(parts, st.text(max_size=6)), max_size=14), st.booleans(), st.integers(1, 60))
def test_a_stream_gives_what_a_whole_reply_gives(written: list[str], is_cut: bool, limit: int) -> None:
    streamed = Utterance(limit)
    pieces = [streamed.add(part) for part in written]
    pieces.append(streamed.end(is_cut=is_cut))
    assert "".join(pieces) == streamed.text
    at_once = Utterance(limit)
    assert at_once.add("".join(written)) + at_once.end(is_cut=is_cut) == streamed.text
    assert len(streamed.text) <= limit + 1
    if not is_cut and not streamed.is_full:
        assert streamed.text == utterance("".join(written))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("That is good. I ho", "That is good. I…"),
        ("That is good.", "That is good."),
        ('"That is good. I ho', "That is good. I…"),
        ("That is good. I ", "That is good. I…"),
        ("That", ""),
    ],
)
def test_what_was_cut_off(raw: str, expected: str) -> None:
    made = Utterance(100)
    assert made.add(raw) + made.end(is_cut=True) == expected


def test_a_reply_without_end() -> None:
    made = Utterance(20)
    assert made.add("a few words, then " * 1000) + made.end(is_cut=False) == "a few words, then a…"
    assert made.is_full
    exact = Utterance(17)
    assert exact.add("a few words, then a ") == "a few words, then"


def test_the_budget_is_of_any_sixty_seconds() -> None:
    now = 0.0
    budget = Budget(2, clock=lambda: now)
    assert budget.take() == 0.0
    now = 30.0
    assert budget.take() == 0.0
    assert budget.take() == 30.0
    now = 59.0
    assert budget.take() == 1.0
    now = 60.0
    assert budget.take() == 0.0
    assert budget.take() == 30.0
