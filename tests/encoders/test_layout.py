"""Token layout, by hand-made ids: what training and answering both see."""

from __future__ import annotations

import json
import time

import pytest

from ranker.encoders.layout import (
    LayoutSettings,
    TokenLayout,
    candidate_ids,
    candidate_text,
    context_ids,
    turn_text,
)
from ranker.errors import ConfigError, InputError, IntegrityError
from ranker.types import Context

CLS, SEP = 1, 2


def test_turns_are_joined_by_the_separator() -> None:
    assert context_ids([[10, 11], [20], [30, 31]], CLS, SEP, 100) == [1, 10, 11, 2, 20, 2, 30, 31, 2]


def test_a_context_of_exactly_the_limit_is_whole() -> None:
    assert context_ids([[10, 11], [20, 21]], CLS, SEP, 7) == [1, 10, 11, 2, 20, 21, 2]


def test_the_newest_tokens_are_kept() -> None:
    assert context_ids([[10, 11], [20, 21]], CLS, SEP, 6) == [1, 11, 2, 20, 21, 2]


@pytest.mark.parametrize("limit", [4, 5])
def test_no_separator_without_a_turn_before_it(limit: int) -> None:
    assert context_ids([[10, 11], [20, 21]], CLS, SEP, limit) == [1, 20, 21, 2]


def test_an_over_long_last_turn_keeps_its_end() -> None:
    assert context_ids([[10], list(range(20, 40))], CLS, SEP, 6) == [1, 36, 37, 38, 39, 2]


def test_turns_without_ids_leave_no_trace() -> None:
    assert context_ids([[], [10], [], [20], []], CLS, SEP, 100) == [1, 10, 2, 20, 2]
    assert context_ids([[]], CLS, SEP, 100) == [1, 2]


def test_a_candidate_keeps_its_start() -> None:
    assert candidate_ids([10, 11, 12], CLS, SEP, 5) == [1, 10, 11, 12, 2]
    assert candidate_ids([10, 11, 12, 13], CLS, SEP, 5) == [1, 10, 11, 12, 2]


def word_tokenizer(*words: str) -> bytes:
    """A tokenizer of whole lower-case words, unknown ones being [UNK]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(special)
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    return str(tokenizer.to_str()).encode()


def layout(max_tokens: int = 100, window: int = 4) -> TokenLayout:
    settings = LayoutSettings("[CLS]", "[SEP]", "[PAD]", max_tokens, window)
    return TokenLayout(word_tokenizer("a", "b", "c", "d", "sep", "[", "]"), settings, source="test")


def test_only_the_last_turns_count() -> None:
    assert layout(window=2).context(Context(("a", "b", "c"))) == [2, 5, 3, 6, 3]


def test_the_tokenizer_s_own_truncation_and_padding_are_off() -> None:
    assert layout().candidate("a b c d") == [2, 4, 5, 6, 7, 3]


def test_a_typed_separator_is_ordinary_text() -> None:
    assert layout().candidate("a [SEP] b") == [2, 4, 9, 8, 10, 5, 3]


def test_broken_and_odd_text_has_ids() -> None:
    laid = layout()
    assert laid.candidate("a \ud800 b")[:2] == [2, 4]
    assert laid.candidate("🙂") == [2, 1, 3]
    assert laid.context(Context(("\ud83d",)))[0] == 2


@pytest.mark.parametrize("text", ["", "  \n\t", "\x00\x01"])
def test_an_empty_candidate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="empty"):
        layout().candidate(text)


def test_long_texts_are_cut_before_they_are_tokenised() -> None:
    laid = layout()
    started = time.perf_counter()
    candidate = laid.candidate("a " * 50_000 + "b")
    context = laid.context(Context(("a " * 50_000 + "b",)))
    assert time.perf_counter() - started < 0.5
    assert candidate == [2, *[4] * 98, 3]
    assert context == [2, *[4] * 97, 5, 3]


def test_text_behind_much_that_is_not_text_is_found() -> None:
    junk = "\x00" * 5000
    assert candidate_text(junk + "hello", 100) == "hello"
    assert turn_text("hello" + junk, 100) == "hello"
    assert turn_text(" " * 5000 + "hello" + " " * 5000, 100) == "hello"


def test_a_foreign_tokenizer_is_refused() -> None:
    settings = LayoutSettings("[CLS]", "[SEP]", "[PAD]")
    with pytest.raises(IntegrityError, match="not a tokenizer"):
        TokenLayout(json.dumps({"a": 1}).encode(), settings, source="x")
    with pytest.raises(IntegrityError, match="no token '<s>'"):
        TokenLayout(word_tokenizer("a"), LayoutSettings("<s>", "[SEP]", "[PAD]"), source="x")


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError):
        LayoutSettings("[CLS]", "[SEP]", "[PAD]", max_tokens=2)
