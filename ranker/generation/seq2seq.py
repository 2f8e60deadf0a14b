"""The generator `seq2seq`: the paper's Transformer with encoder and decoder, decoded by diverse beam search.

Its folder holds, beside the manifest (see `folder`)

    settings.json        the shape of the network
    tokenizer.json       its words, of the `tokenizers` library
    weights.safetensors  of the network
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ranker.config import from_table
from ranker.corpora import Pair
from ranker.errors import ConfigError, GenerationError, InputError, IntegrityError, MissingExtraError
from ranker.generation.decoding import Ends, deadline_of, diverse_beam_search, sample
from ranker.generation.folder import GeneratorFolder
from ranker.generation.settings import GenerationSettings
from ranker.generation.words import Speller, Vocabulary, spelled
from ranker.home import Home
from ranker.types import Context, Reply

if TYPE_CHECKING:
    from ranker.generation.seq2seq_model import Seq2Seq

KIND = "seq2seq"
SETTINGS, TOKENIZER, WEIGHTS = "settings.json", "tokenizer.json", "weights.safetensors"
_BATCH = 32

LONGEST = 1024
"""Positions there are; nothing is learned of them, so that there may be more than were trained on."""


@dataclass(frozen=True, slots=True)
class Seq2SeqShape:
    """What the weights fit: the sizes of the network, and how a context becomes ids."""

    vocabulary: int
    layers: int = 4
    heads: int = 6
    width: int = 300
    feed_forward: int = 1200
    context_tokens: int = 80
    """The newest of a context."""
    context_turns: int = 4

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.width % self.heads or self.width % 2:
            raise ConfigError(f"width {self.width} is not an even multiple of heads")
        if self.context_tokens > LONGEST:
            raise ConfigError(f"context_tokens must be at most {LONGEST}")


def load(root: Path, settings: GenerationSettings, home: Home) -> Seq2SeqGenerator:
    """The generator in the folder `root`; its weights are read at the first need. Raises NotFoundError,
    IntegrityError."""
    folder = GeneratorFolder.open(root, KIND)
    return Seq2SeqGenerator(root.name, folder, _read_shape(folder), settings)


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Seq2Seq
    vocabulary: Vocabulary


class Seq2SeqGenerator:
    """A `LocalGenerator`. Beam search unless the settings say otherwise; a beam's reply is streamed, word by
    word, once it is found."""

    def __init__(
        self, name: str, folder: GeneratorFolder, shape: Seq2SeqShape, settings: GenerationSettings
    ) -> None:
        self._name, self._folder, self._shape, self._settings = name, folder, shape, settings
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def tokenizer_name(self) -> str:
        return f"words, {self._shape.vocabulary:,}"

    def load(self) -> None:
        self._need()

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        """Raises GenerationError where there is no finished reply in time. `hints` are not used."""
        details = {"generator": self._name, "stopped": "end"}
        if self._is_sampled:
            pieces = list(self._sampled(context, details))
            return Reply("".join(pieces), "generated", details=details)
        return Reply(self._searched(context, details), "generated", details=details)

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        if self._is_sampled:
            yield from self._sampled(context, {})
        else:
            yield from re.findall(r"\S+\s*", self._searched(context, {}))

    def loglikelihood(self, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
        """See `LocalGenerator`. A word that the vocabulary does not have counts as the token [UNK]."""
        found: list[tuple[float, int]] = [(0.0, 0)] * len(pairs)
        loaded = self._need()
        import torch  # present, or there would be no weights

        words = loaded.vocabulary
        rows = [
            (
                place,
                self._context_ids(pair.context),
                [words.start, *words.reply_ids(pair.response), words.end],
            )
            for place, pair in enumerate(pairs)
        ]
        rows.sort(key=lambda row: (len(row[1]), len(row[2])))  # little padding
        if any(len(row[2]) > LONGEST for row in rows):
            raise InputError(f"a response has more than {LONGEST:,} tokens")
        with torch.inference_mode():
            for start in range(0, len(rows), _BATCH):
                chunk = rows[start : start + _BATCH]
                batch = loaded.model.batch([row[1] for row in chunk], [row[2] for row in chunk])
                losses = iter(loaded.model.token_losses(batch).tolist())
                for place, _, reply in chunk:
                    count = len(reply) - 1
                    found[place] = (-math.fsum(islice(losses, count)), count)
        return found

    @property
    def _is_sampled(self) -> bool:
        return self._settings.decoding == "sample"

    def _searched(self, context: Context, details: dict[str, str]) -> str:
        loaded = self._need()
        from ranker.generation.seq2seq_model import Continuation

        deadline = deadline_of(self._settings)
        step = Continuation(loaded.model, self._context_ids(context))
        found = diverse_beam_search(step, self._ends(), self._settings, deadline)
        best = next((one for one in found if one.tokens), None)
        if best is None:
            raise GenerationError(f"the generator {self._name!r} had nothing to say")
        details["stopped"] = "end" if best.finished else "length"
        return spelled(loaded.vocabulary.words(best.tokens))

    def _sampled(self, context: Context, details: dict[str, str]) -> Iterator[str]:
        loaded = self._need()
        from ranker.generation.seq2seq_model import Continuation

        deadline = deadline_of(self._settings)
        speller, count = Speller(), 0
        step = Continuation(loaded.model, self._context_ids(context))
        for token in sample(step, self._ends(), self._settings, deadline):
            count += 1
            yield speller.piece(loaded.vocabulary.words([token])[0])
        if not count:
            raise GenerationError(f"the generator {self._name!r} had nothing to say")
        details["stopped"] = "length" if count >= self._settings.max_tokens else "end"

    def _ends(self) -> Ends:
        words = self._need().vocabulary
        return Ends(words.start, frozenset({words.end}), frozenset({words.pad, words.unknown, words.start}))

    def _context_ids(self, context: Context) -> list[int]:
        shape = self._shape
        return self._need().vocabulary.context_ids(
            context, turns=shape.context_turns, tokens=shape.context_tokens
        )

    def _need(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                self._loaded = _read(self._folder, self._shape)
            return self._loaded


def _read_shape(folder: GeneratorFolder) -> Seq2SeqShape:
    path = folder.path / SETTINGS
    try:
        return from_table(Seq2SeqShape, json.loads(folder.read(SETTINGS)), source=str(path))
    except (ConfigError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{path} does not describe a network ({error})") from error


def _read(folder: GeneratorFolder, shape: Seq2SeqShape) -> _Loaded:
    try:
        from ranker.generation.seq2seq_model import Seq2Seq
    except ImportError as error:
        raise MissingExtraError.of(f"the generator in {folder.root}", "train") from error
    vocabulary = Vocabulary(folder.read(TOKENIZER), source=str(folder.path / TOKENIZER))
    if vocabulary.size != shape.vocabulary:
        raise IntegrityError(
            f"{folder.path / TOKENIZER} has {vocabulary.size} words, its settings say {shape.vocabulary}"
        )
    model = Seq2Seq(shape, pad=vocabulary.pad)
    model.load(folder.read(WEIGHTS), source=str(folder.path / WEIGHTS))
    return _Loaded(model.eval(), vocabulary)
