from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import InputError, IntegrityError, MismatchError, NotFoundError
from ranker.labels import EMOTIONS, HeadLabeler, VectorHead, read_head, write_head
from ranker.labels.head import Layer
from ranker.labels.store import Manifest, Training
from ranker.labels.training import HeadSettings, best_temperature, train_head
from ranker.types import Vectors

SOURCE = Training("made up", "none", 3)


def head(temperature: float = 1.0) -> VectorHead:
    """Two inputs, a hidden layer that swaps them, two labels."""
    swap = np.array([[0, 1], [1, 0]], np.float32)
    layers = (
        Layer(swap, np.zeros(2, np.float32)),
        Layer(np.eye(2, dtype=np.float32), np.array([0, 1], np.float32)),
    )
    return VectorHead("emotion", ("happy", "sad"), "enc-1", layers, temperature)


def save(folder: Path, made: VectorHead) -> None:
    write_head(folder, Manifest(made.kind, made.names, SOURCE), made)


def test_scores_by_hand() -> None:
    """(1, -3) swapped is (-3, 1), after the ReLU (0, 1), plus the bias (0, 2)."""
    vectors = np.array([[1, -3]], np.float32)
    assert head().scores(vectors).tolist() == [[0.0, 2.0]]
    odds = np.exp(2.0)
    assert head().probabilities(vectors)[0].tolist() == pytest.approx([1 / (1 + odds), odds / (1 + odds)])
    odds = np.exp(1.0)
    assert head(temperature=2.0).probabilities(vectors)[0, 1] == pytest.approx(odds / (1 + odds))
    assert [label.name for label in head().predict_vectors(vectors, k=9)[0]] == ["sad", "happy"]


def test_round_trip(tmp_path: Path) -> None:
    save(tmp_path, head(1.5))
    found = read_head(tmp_path, encoder="enc-1")
    vectors = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert np.array_equal(found.probabilities(vectors), head(1.5).probabilities(vectors))


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    save(tmp_path, head())
    with pytest.raises(MismatchError, match=r"enc-1, not enc-2.*train-labels head"):
        read_head(tmp_path, encoder="enc-2")


def test_damage_is_refused(tmp_path: Path) -> None:
    save(tmp_path, head())
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(IntegrityError):
        read_head(tmp_path, encoder="enc-1")
    save(tmp_path / "cold", head(temperature=0.0))
    with pytest.raises(IntegrityError):
        read_head(tmp_path / "cold", encoder="enc-1")
    with pytest.raises(NotFoundError):
        read_head(tmp_path / "none", encoder="enc-1")


def test_vectors_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="reads vectors of 2"):
        head().predict_vectors(np.zeros((1, 3), np.float32))


def test_texts_go_through_the_encoder_clean_and_never_empty() -> None:
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> Vectors:
        seen.extend(texts)
        return np.array([[1, -3]] * len(texts), np.float32)

    labeler = HeadLabeler(head(), encode)
    found = labeler.predict(["a\nb", " \n ", ""], k=1)
    assert seen == ["a b"]
    assert [len(labels) for labels in found] == [1, 0, 0]
    assert labeler.predict([]) == []


def test_training_learns_repeats_and_calibrates() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    names = [EMOTIONS[number] for number in rng.integers(0, 3, 600)]
    centres = np.eye(8, dtype=np.float32)
    vectors = np.stack([centres[EMOTIONS.index(name)] for name in names])
    vectors = (vectors + rng.normal(scale=0.3, size=vectors.shape)).astype(np.float32)
    settings = HeadSettings(hidden=16, epoch=20, batch=32, lr=1e-2, dropout=0.1)
    first, second = (train_head(vectors, names, "emotion", "enc", settings) for _ in range(2))
    assert np.array_equal(first.scores(vectors), second.scores(vectors))
    found = first.predict_vectors(vectors)
    right = [labels[0].name == name for labels, name in zip(found, names, strict=True)]
    sure = [labels[0].probability for labels in found]
    assert np.mean(right) > 0.9
    assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.1)


def test_training_refuses_what_it_cannot_use() -> None:
    with pytest.raises(NotFoundError, match="happyy"):
        train_head(np.zeros((2, 4), np.float32), ["happyy", "sad"], "emotion", "enc", HeadSettings())
    with pytest.raises(InputError, match="3 vectors with 2 labels"):
        train_head(np.zeros((3, 4), np.float32), ["sad", "sad"], "emotion", "enc", HeadSettings())


def test_temperature() -> None:
    """Scores 4 : 0 that are right three times in four want odds of 3, so a temperature of 4 / ln 3 = 3.64."""
    scores = np.array([[4, 0]] * 4, np.float32)
    assert best_temperature(scores, np.array([0, 0, 0, 1])) == pytest.approx(4 / np.log(3), rel=0.02)
