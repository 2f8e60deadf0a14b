"""Training the generator `seq2seq` from scratch, but for its word vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from ranker.corpora import Pair
from ranker.errors import ConfigError
from ranker.generation.seq2seq import KIND, SETTINGS, TOKENIZER, WEIGHTS, Seq2SeqShape
from ranker.generation.seq2seq_model import Seq2Seq
from ranker.generation.words import Vocabulary
from ranker.storage import write_bytes, write_json
from ranker.training.generators import (
    GeneratorResult,
    Job,
    StepLoss,
    TrainingSettings,
    run_training,
    training_pairs,
    validation_pairs,
)
from ranker.training.transformer import place_vectors, read_vectors, word_tokenizer

_BATCH = 64
"""Pairs of a batch of validation."""


@dataclass(frozen=True, slots=True)
class Seq2SeqSettings:
    """The table `[model]`."""

    layers: int = 4
    """Of the encoder, and as many of the decoder."""
    heads: int = 6
    width: int = 300
    feed_forward: int = 1200
    vocabulary: int = 16_000
    """At most so many words: the scores of the next one are a third of the work."""
    dropout: float = 0.1
    context_turns: int = 4
    context_tokens: int = 80
    """The newest of a context."""
    reply_tokens: int = 40
    """The first of a reply, its end among them."""
    vectors: str = ""
    """Pretrained word vectors to begin from: a text file, or a folder with vocab.txt and one .npy."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if self.vocabulary < 10 or self.reply_tokens < 2:
            raise ConfigError("vocabulary must be at least 10, and reply_tokens 2")
        self.shape(self.vocabulary)

    def shape(self, words: int) -> Seq2SeqShape:
        """Of a network over so many words. Raises ConfigError."""
        return Seq2SeqShape(
            vocabulary=words,
            layers=self.layers,
            heads=self.heads,
            width=self.width,
            feed_forward=self.feed_forward,
            context_tokens=self.context_tokens,
            context_turns=self.context_turns,
        )


def train(job: Job) -> GeneratorResult:
    """The generator that the tables `[model]` and `[training]` describe. See `run_training`."""
    job.check_tables("model", "training")
    model = job.table(Seq2SeqSettings, "model")
    training = job.table(TrainingSettings, "training")
    pairs = training_pairs(training, job.data)
    held_out = validation_pairs(training, job.data)
    return run_training(
        job, KIND, training, asdict(model), pairs, lambda: Seq2SeqTask(model, pairs, held_out)
    )


class Seq2SeqTask:
    """A `Task`: the network, its words, and the pairs as ids."""

    def __init__(self, settings: Seq2SeqSettings, pairs: Sequence[Pair], held_out: Sequence[Pair]) -> None:
        """Raises NotFoundError or IntegrityError for word vectors that cannot be read."""
        texts = (text for pair in pairs for text in (pair.context.last, pair.response))
        tokenizer = word_tokenizer(texts, settings.vocabulary)
        self._tokenizer_json = str(tokenizer.to_str(pretty=False)).encode()
        self._words = Vocabulary(self._tokenizer_json, source="the new vocabulary")
        self._settings = settings
        self.model = Seq2Seq(settings.shape(self._words.size), pad=self._words.pad, dropout=settings.dropout)
        if settings.vectors:
            words, vectors = read_vectors(Path(settings.vectors).expanduser())
            weight = self.model.embeddings
            deviation = float(weight.detach().std())
            place_vectors(weight, tokenizer.get_vocab(), words, vectors)
            with torch.no_grad():  # as loud as a new network's: the same matrix gives the scores
                weight.mul_(deviation / weight.std())
        self._examples = [self._ids(pair) for pair in pairs]
        self._held_out = sorted(map(self._ids, held_out), key=lambda ids: (len(ids[0]), len(ids[1])))

    @property
    def lengths(self) -> list[tuple[int, int]]:
        return [(len(context), len(reply)) for context, reply in self._examples]

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        return self._padded([self._examples[row] for row in rows])

    def loss(self, batch: Mapping[str, Tensor]) -> StepLoss:
        losses = self.model.token_losses(batch)
        total = losses.mean()
        return StepLoss(total, float(total.detach()), len(losses))

    def validate(self) -> dict[str, float]:
        total, tokens = 0.0, 0
        for start in range(0, len(self._held_out), _BATCH):
            losses = self.model.token_losses(self._padded(self._held_out[start : start + _BATCH]))
            total, tokens = total + float(losses.sum()), tokens + len(losses)
        return {"perplexity": math.exp(min(total / tokens, 50.0)), "loss": total / tokens}

    def save(self, folder: Path) -> None:
        write_json(folder / SETTINGS, asdict(self.model.shape))
        write_bytes(folder / TOKENIZER, self._tokenizer_json)
        self.model.save(str(folder / WEIGHTS))

    def _ids(self, pair: Pair) -> tuple[list[int], list[int]]:
        """Of the context, and of the reply from START to its end; a reply that is cut has none."""
        settings, words = self._settings, self._words
        context = words.context_ids(
            pair.context, turns=settings.context_turns, tokens=settings.context_tokens
        )
        reply = [words.start, *words.reply_ids(pair.response), words.end]
        return context, reply[: settings.reply_tokens + 1]

    def _padded(self, examples: Sequence[tuple[list[int], list[int]]]) -> dict[str, Tensor]:
        batch = self.model.batch([context for context, _ in examples], [reply for _, reply in examples])
        device = self.model.embeddings.device
        return {name: tensor.to(device) for name, tensor in batch.items()}
