"""The word-level Transformer: its vocabulary and the vectors that it begins from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ranker.errors import IntegrityError, NotFoundError
from ranker.training.models import build_model, cores, prepare, trainable
from ranker.training.settings import ModelSettings
from ranker.training.transformer import place_vectors, read_vectors, word_tokenizer

TEXTS = ["The cat sat.", "the dog sat!", "A CAT, a dog", "once"]


def small(**changes: object) -> ModelSettings:
    given = {
        "architecture": "transformer",
        "layers": 2,
        "heads_per_layer": 3,
        "width": 12,
        "feed_forward": 16,
        "vocabulary": 40,
        "towers": "separate",
        "frozen_embeddings": False,
        "max_tokens": 20,
    }
    return ModelSettings(**{**given, **changes})  # type: ignore[arg-type] # keys are checked by the dataclass


def test_vocabulary() -> None:
    tokenizer = word_tokenizer(TEXTS, 40)
    vocabulary = tokenizer.get_vocab()
    assert {"the", "cat", "dog", "sat", "a"} <= set(vocabulary)
    assert "once" not in vocabulary, "a word said once is not kept"
    assert [vocabulary[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")] == [0, 1, 2, 3]
    assert tokenizer.encode("The CAT flew").tokens == ["[CLS]", "the", "cat", "[UNK]", "[SEP]"]
    assert len(word_tokenizer(TEXTS, 6).get_vocab()) == 6


def test_vectors_fill_the_first_dimensions() -> None:
    torch.manual_seed(0)
    weight = torch.zeros(6, 5)
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "cat": 4, "dog": 5}
    words, vectors = ["dog", "unseen", "cat"], np.array([[1, 2, 3], [9, 9, 9], [4, 5, 6]], np.float32)
    assert place_vectors(weight, vocabulary, words, vectors) == 2
    assert weight[5, :3].tolist() == [1, 2, 3]
    assert weight[4, :3].tolist() == [4, 5, 6]
    assert weight[1:, 3:].abs().min() > 0
    assert weight[0].tolist() == [0] * 5
    narrow = torch.zeros(6, 2)
    place_vectors(narrow, vocabulary, words, vectors)
    assert narrow[4].tolist() == [4, 5]


def test_reading_vectors(tmp_path: Path) -> None:
    text = tmp_path / "vectors.txt"
    text.write_text("2 3\ncat 1 2 3\ndog 4 5 6\n")  # with fastText's header
    words, vectors = read_vectors(text)
    assert (words, vectors.tolist()) == (["cat", "dog"], [[1, 2, 3], [4, 5, 6]])
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(NotFoundError, match=r"vocab\.txt"):
        read_vectors(folder)
    np.save(folder / "vectors.npy", np.array([[1, 2], [3, 4]], np.float16))
    (folder / "vocab.txt").write_text("cat\ndog\n")
    words, vectors = read_vectors(folder)
    assert (words, vectors.tolist()) == (["cat", "dog"], [[1, 2], [3, 4]])
    assert vectors.dtype == np.float32
    (folder / "vocab.txt").write_text("cat\n")
    with pytest.raises(IntegrityError, match="1 words"):
        read_vectors(folder)
    text.write_text("cat 1 2\ndog 1\n")
    with pytest.raises(IntegrityError, match="differ in length"):
        read_vectors(text)
    with pytest.raises(NotFoundError):
        read_vectors(tmp_path / "missing")


def test_towers_begin_alike_and_from_the_vectors(tmp_path: Path) -> None:
    text = tmp_path / "vectors.txt"
    text.write_text("cat 1 2 3\n")
    model = build_model(small(vectors=str(text)), None, lambda: TEXTS)
    prepare(model, small())
    left, right = (core.embeddings.word_embeddings.weight for core in cores(model))
    assert left is not right
    assert torch.equal(left, right)
    cat = model.tokenizer.convert_tokens_to_ids("cat")
    assert left[cat, :3].tolist() == [1, 2, 3]
    assert any(name.endswith("word_embeddings.weight") for name in trainable(model))


def test_frozen_parts_stay_out_of_training() -> None:
    settings = small(frozen_embeddings=True, frozen_layers=1)
    model = build_model(settings, None, lambda: TEXTS)
    prepare(model, settings)
    names = list(trainable(model))
    assert names
    assert not any("embeddings" in name or "layer.0." in name for name in names)
    assert any("layer.1." in name for name in names)
