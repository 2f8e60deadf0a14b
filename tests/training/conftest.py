"""Toy data and a tiny random model: small enough to train in a second, real enough to learn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from ranker.corpora import Pair
from ranker.training.data import read_pairs
from ranker.training.settings import ModelSettings, StageSettings
from ranker.types import Encoder

pytest.importorskip("sentence_transformers")

NOUNS = [
    "apple",
    "bear",
    "cake",
    "desk",
    "eagle",
    "farm",
    "guitar",
    "house",
    "island",
    "jacket",
    "kite",
    "lemon",
    "mountain",
    "novel",
    "ocean",
    "piano",
    "quilt",
    "river",
    "sister",
    "train",
    "uncle",
    "violin",
    "window",
    "yard",
    "zebra",
    "bridge",
    "candle",
    "doctor",
    "engine",
    "forest",
    "garden",
    "hammer",
    "insect",
    "jungle",
    "kitten",
    "ladder",
]
ASKED = ("We looked at the {0} all day.", "My {0} is on my mind tonight.", "There was a {0} near our road.")
REPLIED = ("Tell me more about the {0}!", "A {0} can do that to you.", "Was the {0} as you had hoped?")


def sentences() -> list[tuple[list[str], str]]:
    """108 contexts of one or two turns and their responses, which share a noun."""
    rows = []
    for round_, (asked, replied) in enumerate(zip(ASKED, REPLIED, strict=True)):
        for noun in NOUNS:
            turns = ["Hello there.", asked.format(noun)] if round_ == 1 else [asked.format(noun)]
            rows.append((turns, replied.format(noun)))
    return rows


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the reader `generic` takes."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps({"context": turns, "response": reply}) for turns, reply in sentences()]
    (folder / "train.jsonl").write_text("\n".join(lines), "utf-8")
    return folder


@pytest.fixture(scope="session")
def pairs(corpus: Path) -> list[Pair]:
    return read_pairs("generic", corpus, "train", listener_only=False)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 2 layers and 32 dimensions with a word-piece vocabulary of the toy sentences."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("base")
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    texts = [text for turns, reply in sentences() for text in (*turns, reply)]
    tokenizer.train_from_iterator(texts, vocab_size=300, show_progress=False)
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # it has no annotations
        tokenizer_object=tokenizer._tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_settings(base: Path) -> ModelSettings:
    return ModelSettings(base=str(base), frozen_embeddings=False, max_tokens=32)


@pytest.fixture(scope="session")
def stage() -> StageSettings:
    """Twelve steps, three an epoch."""
    return StageSettings(
        corpora=("generic",),
        epochs=4.0,
        batch_size=36,
        micro_batch=16,
        learning_rate=3e-3,
        scale=20.0,
        eval_steps=6,
        precision="fp32",
    )


@pytest.fixture(scope="session")
def measure(pairs: list[Pair]) -> Callable[[Encoder], Mapping[str, float]]:
    """P@1 of the toy pairs among all responses."""

    def figures(encoder: Encoder) -> dict[str, float]:
        contexts = encoder.encode_contexts([pair.context for pair in pairs])
        responses = encoder.encode_candidates([pair.response for pair in pairs])
        best = (contexts @ responses.T).argmax(axis=1)
        return {"p_at_1": 100 * float((best == np.arange(len(pairs))).mean())}

    return figures
