"""Toy classifiers, fitted in a blink to the vectors of the hashing encoder."""

from __future__ import annotations

import pytest

from ranker.encoders.hashing import HashingEncoder
from ranker.safety.classifier import LineClassifier
from ranker.safety.training import FitSettings, fit, task_words
from ranker.types import Context

_SETTINGS = FitSettings(penalty=0.01)
_CRISIS = {
    "the dark thoughts are louder tonight": "self-harm",
    "the dark thoughts come every night": "self-harm",
    "his fists are what i fear at home": "violence",
    "i fear his fists every evening": "violence",
    "her lips went grey after the bee": "emergency",
    "his lips went grey and cold": "emergency",
    "we baked bread on sunday": "none",
    "the garden is lovely in june": "none",
    "my train was late again": "none",
    "aaaa": "none",
    "word word word": "none",
    "what a film": "none",
    "hello": "none",
    "i called them": "none",
}
_OFFENCE = {
    "you have the wit of a turnip": "unsafe",
    "a turnip has more wit": "unsafe",
    "that sounds like a lovely day": "safe",
    "i am sorry to hear that": "safe",
}


@pytest.fixture
def encoder() -> HashingEncoder:
    return HashingEncoder()


@pytest.fixture
def crisis_model(encoder: HashingEncoder) -> LineClassifier:
    words = task_words("crisis", list(_CRISIS))
    vectors = encoder.encode_contexts([Context.of(text) for text in _CRISIS])
    return fit("crisis", words, vectors, list(_CRISIS.values()), encoder.fingerprint, _SETTINGS)


@pytest.fixture
def offence_model(encoder: HashingEncoder) -> LineClassifier:
    words = task_words("offence", list(_OFFENCE))
    vectors = encoder.encode_candidates(list(_OFFENCE))
    return fit("offence", words, vectors, list(_OFFENCE.values()), encoder.fingerprint, _SETTINGS)
