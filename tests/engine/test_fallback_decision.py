"""When the generator is asked, and the artefact that `auto` stands on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ranker.engine.fallback import (
    FILE,
    Decision,
    FallbackSettings,
    Threshold,
    decide,
    generator_version,
    read_threshold,
    when_of,
    write_threshold,
)
from ranker.errors import ConfigError, InputError, IntegrityError
from ranker.home import Home
from ranker.storage import publish, staged_folder, write_json

MEASURED = Threshold(0.3, "cosine", "talker", "", "enc-1", "ED valid, 400 rows", 0.2, 0.25, 0.27)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("never", "never"), ("auto", "auto"), ("always", "always"), ("0.35", 0.35), (0, 0.0), (1.0, 1.0)],
)
def test_what_may_be_asked_for(given: str | float, expected: str | float) -> None:
    assert when_of(given) == expected


@pytest.mark.parametrize("given", ["sometimes", "", "1.01", -0.1, "nan", True, "inf"])
def test_what_may_not(given: str | float) -> None:
    with pytest.raises(InputError, match="never, auto, always or a number from 0 to 1"):
        when_of(given)


@pytest.mark.parametrize(
    ("when", "confidence", "threshold", "asks"),
    [
        ("never", 0.0, 0.9, False),
        ("always", 1.0, None, True),
        ("always", None, None, True),
        ("auto", 0.29, 0.3, True),
        ("auto", 0.3, 0.3, False),
        ("auto", 0.0, None, False),
        ("auto", None, 0.3, False),
        (0.5, 0.49, None, True),
        (0.5, 0.5, None, False),
        (0.0, 0.0, 0.9, False),
        (1.0, None, None, False),
    ],
)
def test_decisions(when: float, confidence: float | None, threshold: float | None, asks: bool) -> None:
    assert decide(when, confidence, "talker", lambda: threshold).asks_generator is asks
    assert not decide(when, confidence, None, lambda: threshold).asks_generator


def test_decisions_explain_themselves() -> None:
    def unread() -> float | None:
        raise AssertionError("the threshold is for auto only")

    low = "nothing in the pool fits well: low confidence"
    assert decide("never", 0.2, "talker", unread) == Decision(False, note=low)
    assert decide("never", 0.8, "talker", unread) == Decision(False)
    assert decide(0.4, 0.2, "talker", unread).reason == "the best retrieved reply has a confidence of 20%"
    assert decide("auto", 0.2, "talker", lambda: None) == decide("never", 0.2, "talker", lambda: None)
    assert decide("auto", 0.8, "talker", lambda: None).note == ""
    assert "no generator" in decide("always", 0.8, None, unread).note
    assert "not calibrated" in decide(0.4, None, "talker", unread).note


def test_the_artefact_round_trips(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert read_threshold("talker", "enc-1", home) is None
    file = write_threshold(MEASURED, home)
    assert file == home.generators / "talker" / FILE
    other = replace(MEASURED, encoder_fingerprint="enc-2", threshold=0.7)
    write_threshold(other, home)
    newer = replace(MEASURED, threshold=0.4)
    write_threshold(newer, home)
    assert read_threshold("talker", "enc-1", home) == newer
    assert read_threshold("talker", "enc-2", home) == other
    assert read_threshold("talker", "enc-3", home) is None


def test_a_generator_trained_again_was_not_measured(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def train(seed: int) -> None:
        with staged_folder(home.generators) as staged:
            write_json(staged / "manifest.json", {"seed": seed})
            publish(staged, home.generators / "talker")

    train(1)
    version = generator_version("talker", home)
    assert version
    write_threshold(replace(MEASURED, generator_version=version), home)
    assert read_threshold("talker", "enc-1", home) is not None
    train(2)
    assert read_threshold("talker", "enc-1", home) is None


def test_a_generator_in_a_folder_keeps_its_threshold_there(tmp_path: Path) -> None:
    home, own = Home(tmp_path / "home"), tmp_path / "mine" / "talker"
    write_threshold(replace(MEASURED, generator=str(own)), home)
    assert (own / FILE).is_file()
    assert read_threshold(str(own), "enc-1", home) is not None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2}', '{"format": 1, "thresholds": [{"threshold": 7}]}']
)
def test_a_damaged_artefact_is_refused(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    file = write_threshold(MEASURED, home)
    file.write_text(text)
    with pytest.raises(IntegrityError, match=r"fallback\.json"):
        read_threshold("talker", "enc-1", home)


def test_settings_out_of_range() -> None:
    for wrong in (
        {"when": 2.0},
        {"max_seconds": 0.0},
        {"max_concurrent": 0},
        {"max_waiting": -1},
    ):
        with pytest.raises(ConfigError, match=r"\[fallback\]"):
            replace(FallbackSettings(), **wrong)
