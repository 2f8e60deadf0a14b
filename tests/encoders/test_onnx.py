"""The encoder that answers, with the weights that come with the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranker.encoders import OnnxEncoder
from ranker.encoders.card import CARD_FILE, EncoderCard, FileStamp
from ranker.encoders.loading import EMBEDDED_ENCODER
from ranker.errors import ConfigError, InputError, IntegrityError
from ranker.labels import Prepend
from ranker.types import Calibration, Context, Encoder

TEXTS = [
    "Congratulations!",
    "I am so sorry to hear that your dog died, he was with you for a very long time.",
    "🙂🙂🙂",
    "Why?",
    "That sounds frightening. Did you call the police? " * 20,
    "I bought a new car yesterday.",
]


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return OnnxEncoder(EMBEDDED_ENCODER, threads=2)


def test_rows_are_unit_float32(encoder: OnnxEncoder) -> None:
    vectors = encoder.encode_candidates(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim) == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert isinstance(encoder, Encoder)


def test_nothing_gives_no_rows(encoder: OnnxEncoder) -> None:
    assert encoder.encode_candidates([]).shape == (0, 384)
    assert encoder.encode_contexts([]).shape == (0, 384)


def test_replies_that_fit_score_higher(encoder: OnnxEncoder) -> None:
    contexts = encoder.encode_contexts(
        [Context.of("I got promoted!"), Context.of("My dog died this morning.")]
    )
    replies = encoder.encode_candidates(
        ["Congratulations on the promotion!", "Sorry for the loss of your dog."]
    )
    scores = contexts @ replies.T
    assert scores.argmax(axis=1).tolist() == [0, 1]


def test_a_vector_depends_on_its_text_only(encoder: OnnxEncoder) -> None:
    """Neither on the texts beside it, nor on their order, nor on the number of threads."""
    together = encoder.encode_candidates(TEXTS)
    alone = np.concatenate([encoder.encode_candidates([text]) for text in TEXTS])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, encoder.encode_candidates(TEXTS[::-1])[::-1])
    np.testing.assert_array_equal(together, OnnxEncoder(EMBEDDED_ENCODER, threads=1).encode_candidates(TEXTS))


def test_many_threads_share_one_encoder(encoder: OnnxEncoder) -> None:
    contexts = [Context.of(text) for text in TEXTS]
    expected = encoder.encode_contexts(contexts)
    with ThreadPoolExecutor(8) as workers:
        for found in workers.map(lambda _: encoder.encode_contexts(contexts), range(24)):
            np.testing.assert_array_equal(found, expected)


def test_older_turns_matter_up_to_the_window(encoder: OnnxEncoder) -> None:
    turns = ("zero", "one", "two", "three", "four")
    five, four, three = (Context(turns[-length:]) for length in (5, 4, 3))
    vectors = encoder.encode_contexts([five, four, three])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert vectors[1] @ vectors[2] < 0.999


def test_progress_counts_every_text(encoder: OnnxEncoder) -> None:
    seen: list[tuple[int, int]] = []
    encoder.encode_candidates(TEXTS, lambda done, total: seen.append((done, total)))
    assert seen == [(number, len(TEXTS)) for number in range(1, len(TEXTS) + 1)]


def test_bad_texts(encoder: OnnxEncoder) -> None:
    with pytest.raises(InputError, match="empty"):
        encoder.encode_candidates(["fine", " "])
    odd = ["\ud800", "x" * 100_000, "[CLS] [SEP]"]
    assert np.isfinite(encoder.encode_candidates(odd)).all()
    assert np.isfinite(encoder.encode_contexts([Context((text,)) for text in odd])).all()


def test_threads_must_be_positive() -> None:
    with pytest.raises(ConfigError):
        OnnxEncoder(EMBEDDED_ENCODER, threads=0)


def test_torch_is_never_imported() -> None:
    code = (
        "import sys; from ranker.encoders import load_encoder; from ranker.types import Context;"
        "load_encoder().encode_contexts([Context.of('hello')]);"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'onnx'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_the_embedded_encoder_fits_the_package() -> None:
    assert sum(file.stat().st_size for file in EMBEDDED_ENCODER.iterdir()) <= 25_000_000


def test_fingerprint_covers_what_changes_vectors_and_nothing_else() -> None:
    card = EncoderCard.load(EMBEDDED_ENCODER)
    same = replace(card, name="other", calibration=Calibration(1.0, 0.0), batch_size=9)
    assert same.fingerprint == card.fingerprint
    stamp = card.files[0]
    others = [
        replace(card, prepend=Prepend("emotion")),
        replace(card, layout=replace(card.layout, context_window=3)),
        replace(card, files=(replace(stamp, sha256="0" * 64), *card.files[1:])),
    ]
    assert len({one.fingerprint for one in (card, *others)}) == 4


def test_a_calibrated_card_survives_saving(tmp_path: Path) -> None:
    card = replace(
        EncoderCard.load(EMBEDDED_ENCODER), calibration=Calibration(2.0, -1.0), prepend=Prepend("topic", 2)
    )
    card.save(tmp_path)
    assert EncoderCard.load(tmp_path) == card


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_ENCODER, tmp_path / "encoder"))


def edit_card(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads((folder / CARD_FILE).read_text("utf-8"))
    change(card)
    (folder / CARD_FILE).write_text(json.dumps(card), "utf-8")


def test_a_truncated_model_is_refused(folder: Path) -> None:
    data = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(data[:-1000])
    with pytest.raises(IntegrityError, match=r"model\.onnx has .* bytes"):
        OnnxEncoder(folder)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_flipped_byte_is_refused(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(IntegrityError, match="sha256"):
        OnnxEncoder(folder)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", CARD_FILE])
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(IntegrityError, match=name):
        OnnxEncoder(folder)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "colour": "red"}', '{"format": 1}']
)
def test_a_foreign_card_is_refused(folder: Path, text: str) -> None:
    (folder / CARD_FILE).write_text(text, "utf-8")
    with pytest.raises(IntegrityError):
        OnnxEncoder(folder)


def test_a_file_that_is_no_graph_is_refused(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"not a graph")
    card = EncoderCard.load(folder)
    stamp = FileStamp.of(folder / "model.onnx")
    replace(card, files=(stamp, card.files[1])).save(folder)
    with pytest.raises(IntegrityError, match="ONNX Runtime"):
        OnnxEncoder(folder)


def test_a_card_that_contradicts_its_files_is_refused(folder: Path) -> None:
    edit_card(folder, lambda card: card.update(dim=100))
    with pytest.raises(IntegrityError, match="100 dimensions"):
        OnnxEncoder(folder)
    edit_card(folder, lambda card: card.update(dim=384, context_graph="other.onnx"))
    with pytest.raises(IntegrityError, match="no sha256"):
        OnnxEncoder(folder)


def test_a_card_cannot_name_files_elsewhere(folder: Path) -> None:
    edit_card(folder, lambda card: card["files"].append({"name": "../x", "sha256": "0", "size": 1}))
    with pytest.raises(IntegrityError, match="outside"):
        OnnxEncoder(folder)


def test_onnxruntime_is_told_to_send_nothing_before_it_is_imported() -> None:
    # A finder that goes first sees the environment at the moment of the import.
    code = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'onnxruntime':\n"
        "            print(os.environ.get('ORT_DISABLE_TELEMETRY'))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from ranker import load_encoder\n"
        "load_encoder().encode_candidates(['hello'])\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["1"], done.stderr
