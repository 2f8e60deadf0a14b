"""The filter of replies."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ranker.encoders.hashing import HashingEncoder
from ranker.errors import InputError
from ranker.safety import ReplyFilter, SafetySettings
from ranker.safety.classifier import LineClassifier


@pytest.fixture
def replies(offence_model: LineClassifier) -> ReplyFilter:
    return ReplyFilter(offence_model)


def test_words_and_patterns_give_their_reason(replies: ReplyFilter) -> None:
    texts = ["what the fuck", "stfu", "You're an idiot.", "send nudes", "I'm sorry to hear that."]
    verdicts = replies.verdicts(texts)
    assert [verdict.reason for verdict in verdicts] == ["profanity", "profanity", "insult", "sexual", None]
    assert [verdict.is_safe for verdict in verdicts] == [False, False, False, False, True]
    assert verdicts[0].probability > 0.9 > verdicts[-1].probability


def test_the_classifier_finds_what_no_pattern_does(replies: ReplyFilter, encoder: HashingEncoder) -> None:
    text = "you have the wit of a turnip"
    assert replies.is_safe(text)
    assert not replies.is_safe(text, encoder=encoder)
    assert replies.verdicts([text], encoder=encoder)[0].reason == "classifier"
    assert replies.is_safe("that sounds like a lovely day", encoder=encoder)


def test_known_vectors_give_the_same_verdicts(replies: ReplyFilter, encoder: HashingEncoder) -> None:
    texts = ["you have the wit of a turnip", "fuck", "i am sorry", "a turnip"]
    vectors = encoder.encode_candidates(texts)
    assert replies.verdicts(texts, vectors, encoder) == replies.verdicts(texts, encoder=encoder)
    with pytest.raises(InputError, match="4 vectors"):
        replies.verdicts(texts[:1], vectors, encoder)


def test_another_encoders_vectors_are_not_read(replies: ReplyFilter) -> None:
    assert replies.is_safe("you have the wit of a turnip", encoder=HashingEncoder(dim=64))


def test_the_threshold_counts(offence_model: LineClassifier, encoder: HashingEncoder) -> None:
    strict = ReplyFilter(offence_model, SafetySettings(reply_threshold=0.001))
    assert not strict.is_safe("a turnip on a lovely day", encoder=encoder)


@pytest.mark.parametrize("text", ["", " ", "🙂", "a" * 100_000, "word " * 20_000, "你好"])
def test_odd_texts(replies: ReplyFilter, encoder: HashingEncoder, text: str) -> None:
    assert replies.is_safe(text)
    assert replies.verdicts([text], np.zeros((1, encoder.dim), np.float32), encoder)[0].probability < 1.0


def test_no_texts(replies: ReplyFilter, encoder: HashingEncoder) -> None:
    assert replies.verdicts([], encoder=encoder) == []


def test_words_and_patterns_are_fast(replies: ReplyFilter) -> None:
    texts = [
        f"That sounds like a lovely day, I hope number {row} goes as well as you say." for row in range(500)
    ]
    replies.verdicts(texts[:1])
    start = time.process_time()
    replies.verdicts(texts)
    assert (time.process_time() - start) / len(texts) < 1e-3  # about 30 microseconds each on an idle machine


def test_a_hostile_text_takes_no_longer(replies: ReplyFilter) -> None:
    start = time.process_time()
    replies.verdicts(
        ["you are " + "so " * 50_000, "you " * 50_000, "your kind are " * 20_000, "no one will " * 9_000]
    )
    assert time.process_time() - start < 2.0
