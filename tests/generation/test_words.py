"""Texts to ids and back."""

from __future__ import annotations

import pytest

from ranker.errors import IntegrityError
from ranker.generation.words import Speller, Vocabulary, spelled
from ranker.types import Context

tokenizers = pytest.importorskip("tokenizers")


def vocabulary(*words: str) -> Vocabulary:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]")
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return Vocabulary(made.to_str().encode(), source="test")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("i ' m so sorry to hear that !", "I'm so sorry to hear that!"),
        ("oh no . don ' t worry , i ' ll help", "Oh no. Don't worry, I'll help"),
        ("it cost $ 3 . 50 - ish ?", "It cost $3.50-ish?"),
        ('she said " wow " to me .', 'She said "wow" to me.'),
        ("yes . . . maybe ( not ) at 10 : 30", "Yes... Maybe (not) at 10:30"),
        ("the dogs ' bowls are 100 % empty", "The dogs' bowls are 100% empty"),
        ("", ""),
    ],
)
def test_spelling(words: str, text: str) -> None:
    assert spelled(words.split()) == text
    speller = Speller()
    assert "".join([speller.piece(word) for word in words.split()]) == text


def test_contexts_keep_the_newest() -> None:
    words = vocabulary("a", "b", "c", "d")
    assert (words.pad, words.unknown, words.start, words.end, words.size) == (0, 1, 2, 3, 8)
    context = Context(("a", "B b", "c x", "d"))
    assert words.context_ids(context, turns=4, tokens=80) == [4, 3, 5, 5, 3, 6, 1, 3, 7]
    assert words.context_ids(context, turns=2, tokens=80) == [6, 1, 3, 7]
    assert words.context_ids(context, turns=4, tokens=3) == [1, 3, 7]
    assert words.reply_ids("A, b.") == [4, 1, 5, 1]
    assert words.words([4, 7]) == ["a", "d"]


def test_special_tokens_in_a_text_are_text() -> None:
    words = vocabulary("a")
    assert words.end not in words.context_ids(Context(("a [SEP] a",)), turns=4, tokens=80)


def test_a_huge_turn_costs_no_more_than_a_long_one() -> None:
    words = vocabulary("a", "b")
    assert words.context_ids(Context(("a " * 2_000_000 + "b",)), turns=4, tokens=5) == [4, 4, 4, 4, 5]
    assert words.context_ids(Context(("\u200d",)), turns=4, tokens=5) == [words.unknown]


def test_not_a_tokenizer() -> None:
    with pytest.raises(IntegrityError, match="is not a tokenizer"):
        Vocabulary(b"{}", source="x")
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    with pytest.raises(IntegrityError, match=r"\[PAD\]"):
        Vocabulary(bare.to_str().encode(), source="x")
