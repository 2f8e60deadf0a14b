"""Text as the patterns read it."""

from __future__ import annotations

import pytest

from ranker.safety.wording import LONGEST, plain_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I can't go on.", "i can not go on ."),
        ("im gonna do it rn", "i am going to do it right now"),
        ("She doesn’t care!!! 😂", "she does not care . lol"),
        ("My mum's cat", "my mother s cat"),
        ("Im goign to kil my self", "i am going to kil myself"),
        ("sucidal", "suicidal"),
        ("brething", "breathing"),
        ("soooo   tired", "soo tired"),
        ("", ""),
        ("🙂🙂", ""),
    ],
)
def test_words_are_spelt_out(text: str, words: str) -> None:
    assert plain_words(text) == words


@pytest.mark.parametrize("word", ["cooking", "shouting", "tripped", "stubbed", "dragged", "tables", "violet"])
def test_words_of_their_own_are_left_alone(word: str) -> None:
    assert plain_words(word) == word


def test_both_ends_of_a_long_text_are_read() -> None:
    words = plain_words("first " + "x " * 100_000 + "last")
    assert words.startswith("first")
    assert words.endswith("last")
    assert len(words) <= LONGEST + 3
