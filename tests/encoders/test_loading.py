"""Encoders by name, folder and hub id."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from ranker.encoders import HashingEncoder, OnnxEncoder, load_encoder
from ranker.encoders.loading import EMBEDDED_ENCODER
from ranker.errors import DownloadError, IntegrityError, MissingExtraError, NotFoundError
from ranker.home import Home


@pytest.mark.parametrize("name", [None, "default", "mini"])
def test_the_embedded_encoder_by_its_names(name: str | None) -> None:
    encoder = load_encoder(name, threads=1)
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.fingerprint == OnnxEncoder(EMBEDDED_ENCODER).fingerprint


def test_hashing_by_name() -> None:
    assert isinstance(load_encoder("hashing"), HashingEncoder)


def test_a_folder_and_a_model_of_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = shutil.copytree(EMBEDDED_ENCODER, home.models / "mine")
    assert isinstance(load_encoder(folder), OnnxEncoder)
    assert isinstance(load_encoder("mine", home=home), OnnxEncoder)


def test_an_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.models / "quality").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="Did you mean 'quality'"):
        load_encoder("qualty", home=home)
    with pytest.raises(NotFoundError, match="Did you mean 'hashing'"):
        load_encoder("hashin", home=home)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="neither"):
        load_encoder(tmp_path)
    (tmp_path / "encoder.json").write_text("{}")
    with pytest.raises(IntegrityError):
        load_encoder(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_encoder(tmp_path / "nowhere")
    with pytest.raises(NotFoundError):
        load_encoder("./nowhere")


def test_a_hub_id_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ranker.encoders.torch", None)
    with pytest.raises(MissingExtraError, match=r"response-ranker\[train\]"):
        load_encoder("owner/name")


def test_a_hub_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="owner/no-such-model") as caught:
        load_encoder("owner/no-such-model")
    assert "\n" not in str(caught.value)
