"""Training the classifiers of safety beside ordinary turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.encoders.hashing import HashingEncoder
from ranker.home import Home
from ranker.safety.labelled import Line
from ranker.safety.training import FitSettings
from ranker.training.safety import harmless, ordinary_turns, train

LINES = [
    *(Line("unsafe", f"you are as thick as plank number {row}") for row in range(6)),
    *(Line("safe", f"that was a fine plank, number {row}") for row in range(6)),
]


def test_ordinary_turns_come_from_the_samples(tmp_path: Path) -> None:
    turns = ordinary_turns(Home(tmp_path))
    assert len(turns) == len(set(turns)) > 1_000
    assert turns == ordinary_turns(Home(tmp_path))
    assert turns != ordinary_turns(Home(tmp_path), seed=1)


def test_harmless_turns() -> None:
    turns = ["Hello", "I want to kill myself", "You are an idiot", "Bye"]
    assert harmless("crisis", turns) == ["Hello", "You are an idiot", "Bye"]
    assert harmless("offence", turns) == ["Hello", "I want to kill myself", "Bye"]
    assert harmless("offence", turns, most=1) == ["Hello"]


def test_training_repeats_itself_and_learns() -> None:
    encoder = HashingEncoder()
    ordinary = ["see you on monday", "the soup is good"]
    first, second = (train("offence", LINES, ordinary, encoder, FitSettings()) for _ in range(2))
    assert first.model.word_weights.tobytes() == second.model.word_weights.tobytes()
    assert first.model.encoder == encoder.fingerprint
    assert len(first.model.support) == len(LINES) + len(ordinary)
    assert first.held_out.shape == (len(LINES),)
    assert float(first.held_out[:6].min()) > float(first.held_out[6:].max())
    assert first.held_out.tolist() == pytest.approx(second.held_out.tolist())
