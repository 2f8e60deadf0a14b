"""The arithmetic of fastText, on a model small enough to compute by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ranker.errors import InputError
from ranker.labels import FastTextLabeler
from ranker.labels.fasttext import FastTextModel, FastTextShape, char_ngrams, hash_all
from ranker.labels.text import tokens_of
from ranker.types import Label, Labeler

WORDS = ("</s>", "good", "bad")


def model(word_ngrams: int = 1, bucket: int = 0) -> FastTextModel:
    rows = np.array([[0, 0], [2, 0], [0, 2], *[[0, 0]] * bucket], np.float32)
    shape = FastTextShape(dim=2, bucket=bucket, word_ngrams=word_ngrams)
    return FastTextModel(shape, ("happy", "sad"), WORDS, rows, np.eye(2, dtype=np.float32))


def labeler() -> FastTextLabeler:
    return FastTextLabeler("emotion", model())


def fnv(data: bytes) -> int:
    """The hash by its definition, a byte at a time."""
    running = 2166136261
    for byte in data:
        signed = byte - 256 if byte > 127 else byte
        running = ((running ^ (signed & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
    return running


def test_hash() -> None:
    words = ["", "a", "foobar", "é", "日本", "</s>", "a" * 300]
    expected = [fnv(word.encode()) for word in words]
    assert hash_all([word.encode() for word in words]).tolist() == expected
    assert expected[2] == 0xBF9CF968  # the published FNV-1a of "foobar"
    assert hash_all([]).tolist() == []


def test_words_are_averaged_with_the_end_of_line() -> None:
    """good, </s>: the mean row is (1, 0), so the softmax is e : 1."""
    found = labeler().probabilities(["good"])
    assert found[0] == pytest.approx([math.e / (math.e + 1), 1 / (math.e + 1)])


def test_unknown_words_are_passed_over() -> None:
    same = labeler().probabilities(["good", "good zebra", "Good"])
    assert np.allclose(same[0], same[1])
    assert np.allclose(same[0], same[2])


def test_word_ngrams_use_the_row_of_their_bucket() -> None:
    """The bucket of the 2-gram (good, bad), hashes widened with their sign, and of the one with </s>."""

    def widened(word: str) -> int:
        value = fnv(word.encode())
        return value - (1 << 32) if value >> 31 else value

    bucket = 1000
    pair = ((widened("good") * 116049371 + widened("bad")) % (1 << 64)) % bucket
    last = ((widened("bad") * 116049371 + widened("</s>")) % (1 << 64)) % bucket
    made = model(word_ngrams=2, bucket=bucket)
    made.rows[3 + pair] = (10, 0)
    made.rows[3 + last] = (0, 5)
    # (2,0) + (0,2) + (0,0) + (10,0) + (0,5) over five features
    odds = math.exp(12 / 5 - 7 / 5)
    found = FastTextLabeler("emotion", made).probabilities(["good bad"])
    assert found[0, 0] == pytest.approx(odds / (odds + 1), abs=1e-6)
    # Keep only the first bucket: four features remain.
    kept = replace(made, rows=made.rows[[0, 1, 2, 3 + pair]], buckets=np.array([pair]))
    odds = math.exp(12 / 4 - 2 / 4)
    found = FastTextLabeler("emotion", kept).probabilities(["good bad"])
    assert found[0, 0] == pytest.approx(odds / (odds + 1), abs=1e-6)


def test_char_ngrams() -> None:
    assert char_ngrams("ab", 2, 3) == [b"<a", b"<ab", b"ab", b"ab>", b"b>"]
    assert char_ngrams("é", 1, 1) == ["é".encode()]
    assert char_ngrams("</s>", 1, 3) == []


def test_answers_do_not_depend_on_the_batch() -> None:
    made = FastTextLabeler("emotion", model(word_ngrams=3, bucket=50))
    made.model.rows[:] = np.random.default_rng(0).normal(size=made.model.rows.shape)
    texts = ["good", "", "bad bad good", "zebra", "good bad"] * 3
    together = made.probabilities(texts)
    assert np.allclose(together, np.concatenate([made.probabilities([text]) for text in texts]), atol=1e-6)


def test_predict_gives_at_most_k_best_first() -> None:
    found: Labeler = labeler()
    first, second = found.predict(["bad", "good"], k=5)
    assert [label.name for label in first] == ["sad", "happy"]
    assert sum(label.probability for label in first) == pytest.approx(1.0, abs=1e-6)
    assert [label.name for label in second] == ["happy", "sad"]
    assert found.predict(["bad"], k=1) == [(Label("emotion", "sad", first[0].probability),)]
    assert found.predict([], k=1) == []


@pytest.mark.parametrize("text", ["", "   ", "\n", "\t\r\n", "\x00"])
def test_a_text_without_a_token_has_no_label(text: str) -> None:
    assert labeler().predict([text, "good"], k=2)[0] == ()


def test_a_newline_inside_is_a_blank() -> None:
    assert labeler().predict(["good\nbad\r\nbad"]) == labeler().predict(["good bad bad"])


@pytest.mark.parametrize(
    "text", ["\ud800 good", "good \U0001f600", "é" * 5000, "a" * 100_000, "__label__sad good"]
)
def test_strange_texts_are_answered(text: str) -> None:
    assert len(labeler().predict([text])[0]) == 1


@pytest.mark.parametrize("k", [0, -1, True, 1.5])
def test_a_wrong_k_is_refused(k: int) -> None:
    with pytest.raises(InputError, match="k must be"):
        labeler().predict(["good"], k)


def test_wrong_texts_are_refused() -> None:
    with pytest.raises(InputError, match="not one string"):
        labeler().predict("good")
    with pytest.raises(InputError, match="not NoneType"):
        labeler().predict([None])  # type: ignore[list-item]  # what a careless caller passes


def test_tokenisation() -> None:
    assert tokens_of("I can't, DON’T_x!", "words") == ["i", "can't", ",", "don't", "x", "!"]
    assert tokens_of("I can't,\nno\x0bway", "spaces") == ["I", "can't,", "no", "way"]
    assert tokens_of("a </s> b", "spaces") == ["a"]
    assert tokens_of("__label__sad a", "spaces") == ["a"]
