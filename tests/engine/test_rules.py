from __future__ import annotations

import numpy as np

from ranker.engine.rules import diversify, is_echo, turn_words, words_of
from ranker.types import Context


def test_words_ignore_case_and_punctuation() -> None:
    assert words_of("Don't STOP, please!") == {"don't", "stop", "please"}
    assert words_of("🎉 ...") == frozenset()


def test_echo_is_the_same_words_or_nearly() -> None:
    turns = turn_words(Context.of(["My dog died this morning.", "I am so sorry for you."]))
    assert is_echo(words_of("my dog died this morning"), turns)
    assert is_echo(words_of("I am so very sorry for you"), turns)  # 6 of 7 words
    assert not is_echo(words_of("I am sorry about your dog"), turns)
    assert not is_echo(words_of("🎉"), turns)


def test_emoji_turn_makes_no_echo_of_everything() -> None:
    assert not is_echo(words_of("🎉"), turn_words(Context.of("🎉🎉")))


def test_diversify_by_hand() -> None:
    """Rows 0 and 1 are the same; row 2 is orthogonal. After row 0, with diversity 0.5:
    row 1 gains 0.5 x 0.9 - 0.5 x 1 = -0.05, row 2 gains 0.5 x 0.4 - 0 = 0.2."""
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    scores = np.array([1.0, 0.9, 0.4], dtype=np.float32)
    assert diversify(scores, vectors, 3, 0.5) == [0, 2, 1]
    assert diversify(scores, vectors, 3, 0.0) == [0, 1, 2]
    assert diversify(scores, vectors, 2, 0.5) == [0, 2]
    assert diversify(scores[:0], vectors[:0], 2, 0.5) == []
