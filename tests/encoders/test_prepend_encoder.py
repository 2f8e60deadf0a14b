"""The token layout with labels prepended, and the guard against an encoder without its labeler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ranker.encoders import OnnxEncoder
from ranker.encoders.card import CARD_FILE
from ranker.encoders.layout import LayoutSettings, TokenLayout
from ranker.encoders.loading import EMBEDDED_ENCODER
from ranker.errors import IntegrityError
from ranker.labels import Prepend, Prepender, open_prepender
from ranker.types import Context

SETTINGS = LayoutSettings("[CLS]", "[SEP]", "[PAD]", max_tokens=6)
WORDS = ["i", "was", "so", "proud", "of", "him", "sad", "lonely", "?", "emotion", "[", "]", ":"]


def tokenizer_json(labels: list[str]) -> bytes:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in labels])
    return str(tokenizer.to_str()).encode()


@pytest.fixture(scope="module")
def prepender() -> Prepender:
    return open_prepender(Prepend("emotion", 3))


@pytest.fixture(scope="module")
def layout(prepender: Prepender) -> TokenLayout:
    return TokenLayout(tokenizer_json(list(prepender.tokens)), SETTINGS, source="x", prepender=prepender)


def names(layout: TokenLayout, ids: list[int]) -> list[str]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(layout.tokenizer_json)
    return [str(tokenizer.id_to_token(number)) for number in ids]


def test_labels_follow_the_first_token_beyond_the_limit(layout: TokenLayout, prepender: Prepender) -> None:
    text = "i was so proud of him"
    labels = prepender.tokens_of(text)
    assert len(labels) == 3
    assert names(layout, layout.candidate(text)) == ["[CLS]", *labels, "i", "was", "so", "proud", "[SEP]"]
    plain = TokenLayout(tokenizer_json([]), SETTINGS, source="x")
    assert len(layout.candidate(text)) == len(plain.candidate(text)) + 3 == 9


def test_a_context_is_labelled_by_all_its_turns(layout: TokenLayout, prepender: Prepender) -> None:
    labels = prepender.tokens_of("i was so lonely so sad")
    found = names(layout, layout.context(Context(("i was so lonely", "so sad"))))
    assert found == ["[CLS]", *labels, "lonely", "[SEP]", "so", "sad", "[SEP]"]
    assert labels != prepender.tokens_of("so sad")


def test_turns_beyond_the_window_do_not_count(layout: TokenLayout) -> None:
    turns = ("so lonely", "i was", "so", "so", "proud")
    assert layout.context(Context(turns)) == layout.context(Context(turns[1:]))


def test_a_label_typed_by_a_user_is_ordinary_text(layout: TokenLayout) -> None:
    assert names(layout, layout.candidate("[emotion:proud]"))[4:] == ["[", "emotion", ":", "proud", "[SEP]"]


def test_a_tokenizer_without_the_labels_is_refused(prepender: Prepender) -> None:
    tokens = [token for token in prepender.tokens if token != "[emotion:proud]"]
    with pytest.raises(IntegrityError, match=r"no token '\[emotion:proud\]'"):
        TokenLayout(tokenizer_json(tokens), SETTINGS, source="x", prepender=prepender)


def test_an_encoder_folder_without_its_labeler_is_refused(tmp_path: Path, prepender: Prepender) -> None:
    folder = Path(shutil.copytree(EMBEDDED_ENCODER, tmp_path / "encoder"))
    card = json.loads((folder / CARD_FILE).read_text())
    setting = prepender.setting
    card["prepend"] = {"kind": setting.kind, "k": setting.k, "sha256": setting.sha256}
    (folder / CARD_FILE).write_text(json.dumps(card))
    with pytest.raises(IntegrityError, match=r"prepend\.json"):
        OnnxEncoder(folder)
    open_prepender(Prepend("emotion", 1)).save(folder)
    with pytest.raises(IntegrityError, match="emotion:1, but the encoder needs emotion:3"):
        OnnxEncoder(folder)
    prepender.save(folder)
    with pytest.raises(IntegrityError, match=r"no token '\[emotion:"):
        OnnxEncoder(folder)
