"""What a newcomer types first: the top reply must take the right emotional direction."""

from __future__ import annotations

import pytest

from ranker import Ranker

GLAD = {
    "proud", "joyful", "excited", "grateful", "hopeful", "impressed", "content", "confident", "surprised",
    "anticipating", "trusting", "caring", "prepared", "faithful", "sentimental", "nostalgic",
}  # fmt: skip
LOSS = {"sad", "devastated", "lonely", "sentimental", "nostalgic"}
ALARM = {
    "terrified", "afraid", "angry", "furious", "annoyed", "devastated", "anxious", "apprehensive",
    "disgusted", "disappointed",
}  # fmt: skip
WORRY = {"anxious", "apprehensive", "afraid", "terrified", "prepared", "anticipating", "hopeful", "confident"}
SHAME = {"embarrassed", "ashamed", "guilty"}

PROBES = [
    ("I finally got promoted at work!", GLAD),
    ("My dog died this morning.", LOSS),
    ("Someone broke into my car last night.", ALARM),
    ("We are expecting our first baby!", GLAD),
    ("I have my final exam tomorrow and I can't sleep.", WORRY),
    ("My grandmother passed away last week.", LOSS),
    ("I tripped and spilled coffee all over my boss in front of everyone.", SHAME),
    ("My neighbour plays loud music at three in the morning every single night.", ALARM),
    ("All my friends moved away and I spend every weekend alone.", LOSS),
    ("My daughter won first prize at the science fair!", GLAD),
    ("I lied to my best friend and I feel terrible about it.", SHAME),
    ("My friends threw me a birthday party and I had no idea!", GLAD),
]


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return Ranker.open("ed", home="/nonexistent")


@pytest.mark.parametrize(("text", "direction"), PROBES, ids=[text[:30] for text, _ in PROBES])
def test_top_reply_takes_the_right_direction(ranker: Ranker, text: str, direction: set[str]) -> None:
    response = ranker.respond(text)
    assert response.candidate is not None
    assert response.candidate.label("emotion") in direction, response.text
