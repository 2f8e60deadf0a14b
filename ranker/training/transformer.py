"""The paper's retrieval Transformer: small, word-level, from scratch but for its word vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from ranker.errors import IntegrityError, NotFoundError
from ranker.training.settings import ModelSettings

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_MIN_COUNT = 2
_REST_DEVIATION = 0.1
"""Of the dimensions that the given vectors do not fill: present from the start, but quieter than these."""


def transformer_towers(settings: ModelSettings, texts: Iterable[str]) -> list[Transformer]:
    """One or two equal Transformer modules over the words of `texts`."""
    tokenizer = word_tokenizer(texts, settings.vocabulary)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads_per_layer,
        intermediate_size=settings.feed_forward,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        max_position_embeddings=settings.longest + 1,
        type_vocab_size=1,
        pad_token_id=0,
    )
    model = BertModel(config, add_pooling_layer=False)
    if settings.vectors:
        words, vectors = read_vectors(Path(settings.vectors).expanduser())
        place_vectors(model.embeddings.word_embeddings.weight, tokenizer.get_vocab(), words, vectors)
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # it has no annotations
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=settings.max_tokens,
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fast.save_pretrained(folder)
        towers = [
            Transformer(folder, model_kwargs={"dtype": torch.float32, "add_pooling_layer": False})
            for _ in range(2 if settings.towers == "separate" else 1)
        ]
    for tower in towers:
        tower.max_seq_length = settings.max_tokens
    return towers


def word_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Lower-cased words and punctuation marks, the most frequent `vocabulary` of those said twice or more."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary, min_frequency=_MIN_COUNT, special_tokens=list(_SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def place_vectors(
    weight: torch.Tensor, vocabulary: dict[str, int], words: list[str], vectors: NDArray[np.float32]
) -> int:
    """Write the known words' vectors into the first dimensions of their rows; returns how many were known.

    Vectors wider than the rows lose their last dimensions; the rows' further dimensions stay random.
    """
    width = min(weight.shape[1], vectors.shape[1])
    known = [(vocabulary[word], row) for row, word in enumerate(words) if word in vocabulary]
    with torch.no_grad():
        weight[:, width:].normal_(std=_REST_DEVIATION)
        if known:
            targets, rows = (list(column) for column in zip(*known, strict=True))
            weight[targets, :width] = torch.from_numpy(np.ascontiguousarray(vectors[rows, :width]))
        weight[vocabulary["[PAD]"]] = 0
    return len(known)


def read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors (words, dim): a folder with vocab.txt and one .npy, or a text file of the GloVe
    or fastText kind. Raises NotFoundError or IntegrityError."""
    if path.is_dir():
        arrays = sorted(path.glob("*.npy"))
        if len(arrays) != 1 or not (path / "vocab.txt").is_file():
            raise NotFoundError(f"{path} does not hold vocab.txt and one .npy file")
        words = (path / "vocab.txt").read_text("utf-8").split("\n")
        words = words[:-1] if words[-1] == "" else words
        vectors = np.load(arrays[0], allow_pickle=False).astype(np.float32)
        if vectors.ndim != 2 or len(words) != len(vectors):
            raise IntegrityError(f"{path}: {len(words)} words, but vectors of shape {vectors.shape}")
        return words, vectors
    if not path.is_file():
        raise NotFoundError(f"no word vectors at {path}")
    words, rows = [], []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            word, *values = line.rstrip().split(" ")
            if number == 0 and len(values) == 1:
                continue  # fastText's header: count and dim
            words.append(word)
            rows.append(np.array(values, np.float32))
    if len({len(row) for row in rows}) != 1:
        raise IntegrityError(f"{path}: the vectors differ in length")
    return words, np.stack(rows)
