"""Prepend-k: which tokens go before a text, and the labeler that a model keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.home import Home
from ranker.labels import Prepend, has_prepender, open_prepender, read_prepender
from ranker.labels.compact import write_fasttext
from ranker.labels.fasttext import FastTextModel, FastTextShape
from ranker.labels.store import Figure, Manifest, Training, read_manifest
from ranker.storage import MANIFEST, write_json


def write_model(home: Home, sad: Sequence[float] = (0, 4)) -> Path:
    """An emotion model of three labels and the words won, lost and so, in the home."""
    shape = FastTextShape(dim=2, bucket=0)
    rows = np.array([[4, 0], sad, [1, 1]], np.float32)
    output = np.array([[1, 0], [0, 1], [0.1, 0.1]], np.float32)
    model = FastTextModel(shape, ("proud", "sad", "calm"), ("won", "lost", "so"), rows, output)
    folder = home.models / "labels" / "emotion"
    write_fasttext(folder, Manifest("emotion", model.labels, Training("made up", "CC0-1.0", 3)), model)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    write_model(made)
    return made


def test_the_most_probable_labels_come_first(home: Home) -> None:
    one, three = (open_prepender(Prepend("emotion", k), home) for k in (1, 3))
    assert one.tokens_of("We WON!") == ["[emotion:proud]"]
    assert one.tokens_of("so\nlost") == ["[emotion:sad]"]
    assert three.tokens_of("lost lost won") == ["[emotion:sad]", "[emotion:proud]", "[emotion:calm]"]
    assert one.tokens == {"[emotion:proud]": "proud", "[emotion:sad]": "sad", "[emotion:calm]": "calm"}


@pytest.mark.parametrize("text", ["", "   ", "unheard-of", "🙂"])
def test_a_text_without_a_known_word_has_none(home: Home, text: str) -> None:
    assert open_prepender(Prepend("emotion", 3), home).tokens_of(text) == []


def test_more_labels_than_there_are(home: Home) -> None:
    assert len(open_prepender(Prepend("emotion", 5), home).tokens_of("won")) == 3


def test_the_bundled_models_serve() -> None:
    assert open_prepender(Prepend.parse("topic:1")).tokens_of("The shuttle is in orbit") == ["[topic:space]"]
    assert len(open_prepender(Prepend.parse("emotion:5")).tokens_of("I was so proud of my son")) == 5


def test_parsing() -> None:
    assert Prepend.parse("topic:5") == Prepend("topic", 5)
    assert str(Prepend("emotion", 3, "abc")) == "emotion:3"
    for wrong in ("emotion", "emotion:", "emotion:x", "emotion:-1", ":1", ""):
        with pytest.raises((ConfigError, NotFoundError)):
            Prepend.parse(wrong)
    for k in (0, 6):
        with pytest.raises(ConfigError, match=f"1 to 5 labels can be prepended, not {k}"):
            Prepend("emotion", k)
    with pytest.raises(NotFoundError, match="Did you mean 'emotion'"):
        Prepend.parse("emotoin:1")


def test_a_model_keeps_its_labeler(home: Home, tmp_path: Path) -> None:
    """Though the home's is trained again, the model is shown the labels that it learnt with."""
    prepender = open_prepender(Prepend("emotion"), home)
    write_model(home, sad=(9, 0))
    assert open_prepender(Prepend("emotion"), home).tokens_of("lost") == ["[emotion:proud]"]
    assert not has_prepender(tmp_path / "model")
    prepender.save(tmp_path / "model")
    assert has_prepender(tmp_path / "model")
    again = read_prepender(tmp_path / "model", prepender.setting)
    assert again.setting == prepender.setting
    assert again.tokens_of("lost") == ["[emotion:sad]"]


def test_the_hash_is_of_what_is_predicted(home: Home) -> None:
    before = open_prepender(Prepend("emotion"), home).setting.sha256
    folder = home.models / "labels" / "emotion"
    table = json.loads((folder / MANIFEST).read_text())
    write_json(folder / MANIFEST, table | {"figures": [{"name": "top-1", "value": 1.0, "rows": 9}]})
    assert read_manifest(folder).figures == (Figure("top-1", 1.0, 9),)
    assert open_prepender(Prepend("emotion"), home).setting.sha256 == before
    write_json(folder / MANIFEST, table | {"labels": ["sad", "proud", "calm"]})
    assert open_prepender(Prepend("emotion"), home).setting.sha256 != before


def test_a_swapped_or_damaged_labeler_is_refused(home: Home, tmp_path: Path) -> None:
    prepender, model = open_prepender(Prepend("emotion"), home), tmp_path / "model"
    prepender.save(model)
    with pytest.raises(IntegrityError, match=r"prepends emotion:1, but the encoder needs emotion:3"):
        read_prepender(model, replace(prepender.setting, k=3))
    write_model(home, sad=(9, 0))
    other = open_prepender(Prepend("emotion"), home)
    other.save(model)
    with pytest.raises(IntegrityError, match="but the encoder needs"):
        read_prepender(model, prepender.setting)
    setting = model / "prepend" / "prepend.json"
    write_json(setting, {"kind": "emotion", "k": 1, "sha256": prepender.setting.sha256})
    with pytest.raises(IntegrityError, match="not the one that the encoder was trained with"):
        read_prepender(model)
    for wrong in ({"kind": "mood"}, {"kind": "emotion", "k": 9}, ["emotion"]):
        write_json(setting, wrong)
        with pytest.raises(IntegrityError):
            read_prepender(model)
    setting.unlink()
    with pytest.raises(IntegrityError):
        read_prepender(model)
