from __future__ import annotations

import pytest

from ranker.errors import NotFoundError
from ranker.labels import EMOTIONS, INTENTS, RESPONSE_INTENTS, TOPICS, as_kind, check_names, names_of


def test_sizes_and_uniqueness() -> None:
    for names, count in ((EMOTIONS, 32), (RESPONSE_INTENTS, 8), (INTENTS, 41), (TOPICS, 20)):
        assert len(names) == len(set(names)) == count


def test_names_are_single_words() -> None:
    """A label is prepended to a text as one token."""
    assert all(name.isalpha() and name.islower() for name in (*INTENTS, *TOPICS))


def test_intents_are_emotions_response_intents_and_neutral() -> None:
    assert set(INTENTS) == {*EMOTIONS, *RESPONSE_INTENTS, "neutral"}
    assert names_of("intent") == INTENTS


def test_unknown_names_are_refused_with_the_nearest() -> None:
    check_names("emotion", ["sad", "proud"])
    with pytest.raises(NotFoundError, match="Did you mean 'proud'"):
        check_names("emotion", ["prowd"])
    with pytest.raises(NotFoundError, match="Did you mean 'emotion'"):
        as_kind("emotions")
    assert as_kind("topic") == "topic"
