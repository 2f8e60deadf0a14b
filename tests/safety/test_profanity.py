"""The list of profane words."""

from __future__ import annotations

import pytest

from ranker.safety.profanity import is_profane


@pytest.mark.parametrize(
    "text",
    ["FUCK", "what a b*tch", "so *shitty*", "you assholes.", "f***", "sh!t", "an a-hole", "two d*cks", "ffs"],
)
def test_profane(text: str) -> None:
    assert is_profane(text)


@pytest.mark.parametrize(
    "text",
    [
        "I live in Scunthorpe",
        "Moby Dick is a classic",
        "A pair of great tits in the garden",
        "We passed the class assessment",
        "My Maine Coon and the cockatoo",
        "Damn, what the hell happened?",
        "He graduated summa cum laude",
        "The house was spic and span",
        "What a *wonderful* day",
        "I got an F!",
        "A song in F# minor",
        "2*b or not 2*b",
    ],
)
def test_not_profane(text: str) -> None:
    assert not is_profane(text)
