"""The crisis detector: which turns it looks at, and what it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.encoders.hashing import HashingEncoder
from ranker.errors import ConfigError, InputError
from ranker.safety import CrisisDetector, SafetySettings, fixed_message
from ranker.safety.classifier import LineClassifier
from ranker.types import Context


@pytest.fixture
def detector(crisis_model: LineClassifier) -> CrisisDetector:
    return CrisisDetector(crisis_model)


def test_a_plain_statement_needs_no_encoder(detector: CrisisDetector) -> None:
    crisis = detector.detect("I want to kill myself")
    assert crisis is not None
    assert (crisis.category, crisis.message) == ("self-harm", fixed_message("self-harm"))
    assert crisis.probability >= 0.9
    assert detector.detect("This traffic is killing me") is None


def test_the_classifier_finds_what_no_pattern_does(detector: CrisisDetector, encoder: HashingEncoder) -> None:
    for text, category in (
        ("the dark thoughts tonight", "self-harm"),
        ("i fear his fists", "violence"),
        ("his lips went grey", "emergency"),
    ):
        assert detector.detect(text) is None
        crisis = detector.detect(text, encoder=encoder)
        assert crisis is not None
        assert crisis.category == category
    assert detector.detect("we baked bread in june", encoder=encoder) is None


def test_a_known_vector_is_used(detector: CrisisDetector, encoder: HashingEncoder) -> None:
    text = "the dark thoughts tonight"
    vector = encoder.encode_contexts([Context.of(text)])
    found = detector.detect(text, vector, encoder)
    assert found == detector.detect(text, encoder=encoder)
    elsewhere = encoder.encode_contexts([Context.of("we baked bread on sunday")])
    other = detector.detect(text, elsewhere, encoder)
    assert found is not None
    assert other is None or other.probability < found.probability


def test_another_encoders_vectors_are_not_read(detector: CrisisDetector) -> None:
    other = HashingEncoder(dim=64)
    assert not detector.reads(other)
    assert detector.detect("the dark thoughts tonight", encoder=other) is None
    assert detector.detect("I want to die", encoder=other) is not None


def test_the_threshold_counts(crisis_model: LineClassifier, encoder: HashingEncoder) -> None:
    text = "thoughts about bread"
    low = CrisisDetector(crisis_model, SafetySettings(crisis_threshold=0.001)).detect(text, encoder=encoder)
    high = CrisisDetector(crisis_model, SafetySettings(crisis_threshold=0.999)).detect(text, encoder=encoder)
    assert low is not None
    assert high is None


def test_an_earlier_turn_of_the_user_counts(detector: CrisisDetector) -> None:
    assert detector.detect(["I want to die", "Nice weather today!", "hello?"]) is not None
    assert detector.detect(["I want to die", "Oh.", "hello?", "Hi.", "are you there?"]) is None


def test_what_the_other_side_said_does_not(detector: CrisisDetector) -> None:
    assert detector.detect(["How was the film?", "He says: I want to die", "Great scene"]) is None


def test_a_message_of_ours_answers_a_turn_once(detector: CrisisDetector) -> None:
    answered = ["I want to die", fixed_message("self-harm"), "thank you, I called them"]
    assert detector.detect(answered) is None
    assert detector.detect([*answered[:2], "I still want to die"]) is not None


def test_an_overdose_is_an_emergency_first(detector: CrisisDetector) -> None:
    crisis = detector.detect("I want to die and I took too many pills")
    assert crisis is not None
    assert crisis.category == "emergency"


@pytest.mark.parametrize("text", ["🙂", "…", "?!", "a" * 100_000, "word " * 20_000, "你好"])
def test_odd_texts(detector: CrisisDetector, encoder: HashingEncoder, text: str) -> None:
    assert detector.detect(text, encoder=encoder) is None


def test_a_crisis_at_the_end_of_a_long_text(detector: CrisisDetector) -> None:
    assert detector.detect("blah " * 20_000 + "and I want to kill myself") is not None


def test_an_empty_context(detector: CrisisDetector) -> None:
    with pytest.raises(InputError):
        detector.detect(" ")


def test_an_operators_messages(crisis_model: LineClassifier, tmp_path: Path) -> None:
    file = tmp_path / "messages.toml"
    file.write_text('self-harm = "A"\nviolence = "B"\nemergency = "C"\n', "utf-8")
    crisis = CrisisDetector(crisis_model, SafetySettings(messages=file)).detect("My husband hits me")
    assert crisis is not None
    assert crisis.message == "B"
    file = tmp_path / "short.toml"
    file.write_text('self-harm = "A"\n', "utf-8")
    with pytest.raises(ConfigError, match="violence"):
        CrisisDetector(crisis_model, SafetySettings(messages=file))
