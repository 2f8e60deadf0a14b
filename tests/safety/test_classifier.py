"""The classifier: its numbers, its fitting, and its folder on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import InputError, IntegrityError, NotFoundError, TrainingError
from ranker.home import Home
from ranker.safety.classifier import LineClassifier, logistic
from ranker.safety.ngrams import BUCKETS, ngrams
from ranker.safety.store import (
    Manifest,
    model_folder,
    read_classifier,
    read_manifest,
    write_classifier,
)
from ranker.safety.training import FitSettings, cross_validated, fit
from ranker.storage import MANIFEST


def written(folder: Path, model: LineClassifier) -> Path:
    manifest = Manifest(
        "crisis", model.outputs, model.encoder, model.dim, model.gamma, 9, "abc", 0, "penalty 0.01"
    )
    write_classifier(folder, manifest, model)
    return folder


def test_scores_by_hand() -> None:
    support = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    word_weights = np.zeros((BUCKETS, 1), np.float32)
    buckets, values = ngrams("hi")
    word_weights[buckets] = 2.0
    weights = np.array([[3.0], [-1.0]], np.float32)
    model = LineClassifier(("x",), "e", 2.0, support, weights, word_weights, np.array([0.5], np.float32))
    score = float(model.scores(["hi"], support[:1])[0, 0])
    by_hand = 0.5 + 2.0 * values.sum() + 3.0 * 1.0 - 1.0 * np.exp(-2.0)
    assert score == pytest.approx(float(by_hand), rel=1e-5)
    assert model.probabilities([""], support[1:])[0] == pytest.approx(
        1 / (1 + np.exp(-(0.5 + 3.0 * np.exp(-2.0) - 1.0))), rel=1e-5
    )
    assert float(logistic(np.array([-1e9, 1e9], np.float32))[1]) == pytest.approx(1.0)


def test_vectors_of_another_size(crisis_model: LineClassifier) -> None:
    with pytest.raises(InputError, match="vectors"):
        crisis_model.scores(["a"], np.zeros((1, 3), np.float32))


def test_ngrams_have_unit_length_and_repeat() -> None:
    buckets, values = ngrams("you are kind")
    assert float((values**2).sum()) == pytest.approx(1.0, rel=1e-5)
    again, _ = ngrams("you are kind")
    assert buckets.tolist() == again.tolist()
    # 3 words, 4 pairs with the ends, and the pieces of <you>, <are>, <kind>.
    assert len(buckets) == 3 + 4 + (3 + 2) + (3 + 2) + (4 + 3)
    assert len(ngrams("")[0]) == 0


def test_fitting_repeats_itself(crisis_model: LineClassifier) -> None:
    words = ["good day", "bad day", "good night", "bad night"]
    vectors = np.eye(4, dtype=np.float32)
    labels = ["safe", "unsafe", "safe", "unsafe"]
    first, second = (fit("offence", words, vectors, labels, "e", FitSettings()) for _ in range(2))
    assert first.word_weights.tobytes() == second.word_weights.tobytes()
    assert first.outputs == ("offence",)
    assert crisis_model.outputs == ("crisis", "self-harm", "violence", "emergency")
    scores = first.scores(words, vectors)[:, 0]
    assert (scores[[1, 3]] > scores[[0, 2]].max()).all()


def test_cross_validation_leaves_the_line_out() -> None:
    words = ["good"] * 6 + ["bad"] * 6
    vectors = np.tile(np.array([[1.0, 0.0]], np.float32), (12, 1))
    labels = ["safe"] * 6 + ["unsafe"] * 6
    odds = cross_validated("offence", words, vectors, labels, FitSettings(folds=3))
    assert (odds[:6] < 0).all()
    assert (odds[6:] > 0).all()
    # A lone line of its kind cannot be known without it.
    labels = ["safe"] * 11 + ["unsafe"]
    odds = cross_validated("offence", [*["good"] * 11, "bad"], vectors, labels, FitSettings(folds=12))
    assert odds[11] < 0


def test_lines_of_one_label() -> None:
    with pytest.raises(TrainingError, match="'unsafe'"):
        fit("offence", ["a"], np.ones((1, 1), np.float32), ["safe"], "e", FitSettings())


def test_a_model_on_disk(tmp_path: Path, crisis_model: LineClassifier) -> None:
    folder = written(tmp_path / "crisis", crisis_model)
    read = read_classifier(folder, "crisis")
    words, vectors = ["the dark thoughts"], crisis_model.support[:1]
    assert read.scores(words, vectors) == pytest.approx(crisis_model.scores(words, vectors), abs=0.02)
    written(folder, read)
    assert len(list(folder.glob("*.safetensors"))) == 1
    with pytest.raises(IntegrityError, match="not offence"):
        read_classifier(folder, "offence")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="ranker train-safety"):
        read_classifier(tmp_path, "crisis")


@pytest.mark.parametrize(
    "damage", ["flip", "truncate", "missing", "manifest", "format", "outputs", "dim", "other"]
)
def test_a_damaged_model(tmp_path: Path, crisis_model: LineClassifier, damage: str) -> None:
    folder = written(tmp_path, crisis_model)
    file = folder / read_manifest(folder).file
    values = json.loads((folder / MANIFEST).read_text("utf-8"))
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "truncate":
        file.write_bytes(data[:-1])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        (folder / MANIFEST).write_text("{", "utf-8")
    else:
        wrong = {"format": 99, "outputs": [], "dim": 3, "other": 1}[damage]
        (folder / MANIFEST).write_text(json.dumps(values | {damage: wrong}), "utf-8")
    with pytest.raises(IntegrityError):
        read_classifier(folder, "crisis")


def test_the_homes_own_model_goes_first(tmp_path: Path, crisis_model: LineClassifier) -> None:
    home = Home(tmp_path)
    packaged = model_folder("crisis", home)
    assert packaged == model_folder("crisis")
    own = written(home.models / "safety" / "crisis", crisis_model)
    assert model_folder("crisis", home) == own
