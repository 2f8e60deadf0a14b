"""Model folders: written whole, verified before they are parsed, refused where damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import IntegrityError, NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.labels import KINDS, FastTextLabeler, load_labeler, model_folder, names_of
from ranker.labels.compact import prune, quantise, read_fasttext, write_fasttext
from ranker.labels.fasttext import FastTextModel, FastTextShape
from ranker.labels.store import Manifest, Training, read_manifest
from ranker.storage import MANIFEST
from ranker.types import LabelKind

TEXTS = ["good day", "bad bad day", "quite unknown", "", "good bad good"]
SOURCE = Training("made up", "none", 3)


def model(bucket: int = 64) -> FastTextModel:
    rng = np.random.default_rng(3)
    words = ("</s>", "good", "bad", "day", "naïve")
    rows = rng.normal(size=(len(words) + bucket, 6)).astype(np.float32)
    output = rng.normal(size=(3, 6)).astype(np.float32)
    shape = FastTextShape(dim=6, bucket=bucket, word_ngrams=2)
    return FastTextModel(shape, ("happy", "sad", "calm"), words, rows, output)


def written(folder: Path, made: FastTextModel) -> Manifest:
    return write_fasttext(folder, Manifest("emotion", made.labels, SOURCE), made)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    made = model()
    manifest = written(tmp_path / "m", made)
    found = read_fasttext(tmp_path / "m")
    assert found.kind == "emotion"
    assert found.names == made.labels
    assert found.model.words == made.words
    assert manifest.training == SOURCE
    expected = FastTextLabeler("emotion", made).probabilities(TEXTS)
    assert np.abs(found.probabilities(TEXTS) - expected).max() < 0.02  # a byte per number


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "a", model()) == written(tmp_path / "b", model())


def test_writing_again_replaces_the_model(tmp_path: Path) -> None:
    written(tmp_path, model())
    second = written(tmp_path, model(bucket=32))
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([second.file, MANIFEST])
    assert read_fasttext(tmp_path).model.shape.bucket == 32


def test_quantised_rows_are_within_half_a_step() -> None:
    rows = np.array([[127.0, -1.0], [0.0, 0.0], [0.5, 0.25]], np.float32)
    codes, scales = quantise(rows)
    assert codes[0].tolist() == [127, -1]
    assert scales.tolist() == pytest.approx([1.0, 1.0, 0.5 / 127])
    assert np.abs(codes * scales[:, None] - rows).max() <= scales.max() / 2


def test_pruning_keeps_the_weightiest_ngrams(tmp_path: Path) -> None:
    made = model()
    made.rows[5 + 40] = 9.0
    made.rows[5 + 7] = 8.0
    fixed = 5 * 10 + len("</s>\ngood\nbad\nday\nnaïve".encode()) + 3 * 6 * 4
    small = prune(made, fixed + 2 * 14)
    assert small.buckets is not None
    assert small.buckets.tolist() == [7, 40]
    assert small.rows[5:].tolist() == [[8.0] * 6, [9.0] * 6]
    assert prune(made, 10**6) is made
    written(tmp_path, small)
    assert read_fasttext(tmp_path).model.buckets is not None


@pytest.mark.parametrize("damage", ["truncate", "flip", "append", "empty", "remove"])
def test_damaged_numbers_are_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / written(tmp_path, model()).file
    data = file.read_bytes()
    changed = {
        "truncate": data[:-1],
        "flip": data[:50] + bytes([data[50] ^ 1]) + data[51:],
        "append": data + b"\0",
        "empty": b"",
    }
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(changed[damage])
    with pytest.raises(IntegrityError):
        read_fasttext(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("kind", "mood"),
        ("labels", []),
        ("labels", ["happy", "happy", "sad"]),
        ("labels", ["happy", "sad"]),
        ("file", "../elsewhere"),
        ("fasttext", None),
        ("fasttext", {"dim": 6, "bucket": 64, "word_ngrams": 2_000_000}),
        ("fasttext", {"dim": 0, "bucket": 64}),
        ("fasttext", {"dim": 6, "bucket": 0, "word_ngrams": 2}),
        ("fasttext", {"dim": 6, "bucket": 65, "word_ngrams": 2}),
        ("surprise", 1),
    ],
)
def test_a_wrong_manifest_is_refused(key: str, value: object, tmp_path: Path) -> None:
    written(tmp_path, model())
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {key: value}))
    with pytest.raises(IntegrityError):
        read_fasttext(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_a_manifest_that_is_no_json_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(IntegrityError):
        read_manifest(tmp_path)


def test_a_missing_model_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="train-labels"):
        read_fasttext(tmp_path)
    with pytest.raises(NotFoundError, match="train-labels nonsense"):
        model_folder("nonsense", Home(tmp_path))


def test_the_home_goes_before_the_package(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert model_folder("emotion", home) == EMBEDDED / "labels" / "emotion"
    written(home.models / "labels" / "emotion", model())
    assert load_labeler("emotion", home=home).names == ("happy", "sad", "calm")
    with pytest.raises(NotFoundError, match="predicts emotion, not topic"):
        load_labeler("topic", home.models / "labels" / "emotion")


@pytest.mark.parametrize("kind", KINDS)
def test_bundled_models(kind: LabelKind) -> None:
    folder = model_folder(kind)
    manifest = read_manifest(folder)
    assert manifest.size < 2_000_000
    assert manifest.training.licence
    assert manifest.figures
    labeler = load_labeler(kind)
    assert set(labeler.names) == set(names_of(kind))
    assert np.allclose(labeler.probabilities(["a plain sentence"]).sum(), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("emotion", "I was so proud when my daughter graduated.", "proud"),
        ("emotion", "I felt so lonely after all of my friends moved away.", "lonely"),
        ("topic", "The shuttle will put the satellite into orbit around the moon.", "space"),
        ("topic", "The goalie stopped every shot in the playoffs.", "hockey"),
        ("intent", "What happened? Did you call the police?", "questioning"),
        ("intent", "I am so sorry to hear that.", "sympathizing"),
    ],
)
def test_bundled_models_say_the_obvious(kind: LabelKind, text: str, name: str) -> None:
    (labels,) = load_labeler(kind).predict([text], k=1)
    assert labels[0].name == name
