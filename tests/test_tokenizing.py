"""Texts to ids, exactly as a tokenizer's file says."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ranker.errors import IntegrityError
from ranker.tokenizing import PlainTokenizer


def file_of(*words: str) -> bytes:
    tokenizer = Tokenizer(
        WordLevel({"[UNK]": 0, "[SEP]": 1} | {w: n for n, w in enumerate(words, 2)}, "[UNK]")
    )
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(["[SEP]"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    return str(tokenizer.to_str()).encode()


def test_neither_cut_nor_padded() -> None:
    tokenizer = PlainTokenizer(file_of("so", "glad"), source="a file")
    assert tokenizer.ids("so glad so glad sad") == [2, 3, 2, 3, 0]
    assert tokenizer.size == 4
    assert tokenizer.token_of(3) == "glad"


def test_a_special_token_in_a_text_is_ordinary() -> None:
    tokenizer = PlainTokenizer(file_of("so"), source="a file")
    assert 1 not in tokenizer.ids("so[SEP]so")
    assert tokenizer.id_of("[SEP]") == 1


def test_a_missing_token() -> None:
    with pytest.raises(IntegrityError, match=r"a file has no token '\[CLS\]'"):
        PlainTokenizer(file_of(), source="a file").id_of("[CLS]")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b'{"model": 3}'])
def test_no_tokenizer(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="a file is not a tokenizer"):
        PlainTokenizer(data, source="a file")
