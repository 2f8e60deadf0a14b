"""The same numbers as fastText itself, where it is installed; and files that would make it hang or crash."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranker.errors import IntegrityError, NotFoundError, RankerError
from ranker.labels import EMOTIONS, FastTextLabeler, load_labeler
from ranker.labels.binary import read_fasttext_file
from ranker.labels.text import Tokenisation, tokens_of
from ranker.labels.training import FastTextSettings, train_fasttext

FASTTEXT_ADDS = 1e-5
"""fastText returns each probability plus this."""

SHAPES = (
    FastTextSettings(dim=8, epoch=3, lr=0.5, word_ngrams=1),
    FastTextSettings(dim=10, epoch=3, lr=0.5, word_ngrams=3, bucket=500),
    FastTextSettings(dim=7, epoch=3, lr=0.5, word_ngrams=2, bucket=300, min_chars=2, max_chars=4),
    FastTextSettings(dim=6, epoch=3, lr=0.5, word_ngrams=2, bucket=100, tokenisation="spaces", min_count=2),
)
ODD = ["Zzyzx unknown!", "naïve café — “quoted”", "日本語 text", "a </s> b", "__label__sad so", "x" * 300]


def rows(count: int = 400) -> list[tuple[str, str]]:
    """Made-up sentences in which one word tells the emotion."""
    chosen = random.Random(1)
    filler = ["i", "was", "so", "when", "my", "dog", "the", "café", "it's", "really", "日本"]
    found = []
    for _ in range(count):
        name = chosen.choice(EMOTIONS[:6])
        words = chosen.choices(filler, k=8)
        words.insert(chosen.randrange(8), f"{name}word")
        found.append((" ".join(words), name))
    return found


def fasttext_of(folder: Path, settings: FastTextSettings) -> Any:
    """A model trained by fastText directly."""
    fasttext = pytest.importorskip("fasttext", reason="fastText is not installed")
    source = folder / "train.txt"
    lines = [f"__label__{name} {' '.join(tokens_of(text, settings.tokenisation))}\n" for text, name in rows()]
    source.write_text("".join(lines), "utf-8")
    return fasttext.train_supervised(
        str(source),
        dim=settings.dim,
        lr=settings.lr,
        epoch=settings.epoch,
        wordNgrams=settings.word_ngrams,
        minn=settings.min_chars,
        maxn=settings.max_chars,
        bucket=settings.bucket,
        minCount=settings.min_count,
        thread=1,
        verbose=0,
    )


def difference(theirs: Any, ours: FastTextLabeler, tokenisation: Tokenisation) -> float:
    """The largest difference of a probability over many texts."""
    texts = [text for text, _ in rows(60)] + ODD
    worst = 0.0
    for text, found in zip(texts, ours.probabilities(texts), strict=True):
        line = text if tokenisation == "spaces" else " ".join(tokens_of(text, tokenisation))
        expected = {
            name.removeprefix("__label__"): value
            for value, name in theirs.f.predict(f"{line}\n", -1, 0.0, "strict")
        }
        for name, value in zip(ours.names, found, strict=True):
            worst = max(worst, abs(expected[name] - FASTTEXT_ADDS - value))
    return worst


@pytest.mark.parametrize("settings", SHAPES, ids=str)
def test_same_probabilities(settings: FastTextSettings, tmp_path: Path) -> None:
    theirs = fasttext_of(tmp_path, settings)
    theirs.save_model(str(tmp_path / "model.bin"))
    model = read_fasttext_file(tmp_path / "model.bin", settings.tokenisation)
    assert difference(theirs, FastTextLabeler("emotion", model), settings.tokenisation) < 1e-5


@pytest.mark.parametrize("has_norms", [False, True])
def test_same_probabilities_of_a_quantised_file(has_norms: bool, tmp_path: Path) -> None:
    settings = FastTextSettings(dim=9, epoch=3, lr=0.5, word_ngrams=2, bucket=2000, min_chars=2, max_chars=3)
    theirs = fasttext_of(tmp_path, settings)
    theirs.quantize(
        input=str(tmp_path / "train.txt"),
        cutoff=600,
        qnorm=has_norms,
        dsub=2,
        retrain=False,
        thread=1,
        verbose=0,
    )
    theirs.save_model(str(tmp_path / "model.ftz"))
    model = read_fasttext_file(tmp_path / "model.ftz", "words")
    assert model.buckets is not None
    assert difference(theirs, FastTextLabeler("emotion", model), "words") < 1e-5


def test_training_repeats_itself_and_learns() -> None:
    pytest.importorskip("fasttext", reason="fastText is not installed")
    settings = FastTextSettings(dim=8, epoch=20, lr=0.5, word_ngrams=2, bucket=1000)
    first, second = (train_fasttext(rows(), "emotion", settings) for _ in range(2))
    assert np.array_equal(first.rows, second.rows)
    assert first.words == second.words
    found = FastTextLabeler("emotion", first).predict([text for text, _ in rows()])
    assert np.mean([labels[0].name == name for labels, (_, name) in zip(found, rows(), strict=True)]) > 0.95


def test_an_unknown_label_is_refused() -> None:
    pytest.importorskip("fasttext", reason="fastText is not installed")
    with pytest.raises(NotFoundError, match="Did you mean 'joyful'"):
        train_fasttext([("text", "joyfull")], "emotion", FastTextSettings())


def binary_file(
    *,
    magic: int = 793712314,
    version: int = 12,
    model: int = 3,
    loss: int = 3,
    labels: int = 2,
    extra: bytes = b"",
) -> bytes:
    """A tiny model file, written by hand: words </s> and good, labels happy and sad, two dimensions."""
    header = struct.pack("<ii12id", magic, version, 2, 5, 5, 1, 5, 1, loss, model, 0, 0, 0, 100, 0.0)
    names = [b"</s>", b"good", b"__label__happy", b"__label__sad"]
    dictionary = struct.pack("<3iqq", 2 + labels, 2, labels, 10, -1)
    for place, name in enumerate(names):
        dictionary += name + b"\0" + struct.pack("<qb", 1, place >= 2)
    rows = struct.pack("<?qq4f", False, 2, 2, 0, 0, 2, 0)
    output = struct.pack("<?qq4f", False, 2, 2, 1, 0, 0, 1)
    return header + dictionary + rows + output + extra


def test_a_file_needs_no_fasttext(tmp_path: Path) -> None:
    file = tmp_path / "own.bin"
    file.write_bytes(binary_file())
    found = load_labeler("topic", file).predict(["good", "good\ngood"], k=2)
    assert [label.name for label in found[0]] == ["happy", "sad"]
    assert found[0][0].kind == "topic"
    assert found[0][0].probability == pytest.approx(np.e / (np.e + 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"PK\x03\x04 something else entirely", "does not begin like one"),
        (binary_file(version=99), "does not begin like one"),
        (binary_file(model=1), "word vectors"),
        (binary_file(loss=1), "hierarchical"),
        (binary_file(labels=1_000_000), "dictionary|no end|truncated"),
        (binary_file(extra=b"\0"), "after its end"),
        (binary_file()[:-4] + struct.pack("<f", float("nan")), "not finite"),
    ],
    ids=["empty", "foreign", "version", "vectors", "hierarchical", "labels", "longer", "nan"],
)
def test_a_bad_file_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.bin"
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match=message):
        read_fasttext_file(file)


def test_no_truncated_or_flipped_file_does_harm(tmp_path: Path) -> None:
    """Every truncation is refused; a changed byte gives an answer or a RankerError, never anything else."""
    whole = binary_file()
    file = tmp_path / "bad.bin"
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(IntegrityError):
            read_fasttext_file(file)
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            labeler = load_labeler("emotion", file)
        except RankerError:
            continue
        assert np.isfinite(labeler.probabilities(["good day", ""])).all()


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        load_labeler("emotion", tmp_path / "none.bin")
