"""The words of the package as types: what goes in, what comes out, and the protocols between.

Scores are inner products of unit vectors: larger is better, everywhere.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError

Vectors = NDArray[np.float32]
"""Always 2-D (rows, dim), float32, rows of unit length."""

LabelKind = Literal["emotion", "intent", "topic"]
Source = Literal["retrieved", "generated", "fixed"]
Utterances = Literal["listener", "response", "all"]
"""Which utterances of a corpus become candidates: the listener's, every reply, or all."""
Progress = Callable[[int, int], None]
"""Called with (done, total) as a long job goes on."""


def clean_text(text: str) -> str:
    """`text` as it may be stored and encoded: NFC, lone surrogates replaced, runs of whitespace and
    control characters collapsed to one space, no space at the ends."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
        text = unicodedata.normalize("NFC", text)
    if not text.isprintable():
        text = text.translate(_INVISIBLE)
        text = "".join(char if char.isprintable() or char in _JOINERS else " " for char in text)
    return " ".join(text.split()) if text.strip(_BLANK) else ""


# Not printable by Python's rule, but part of emoji and of several scripts.
_JOINERS = "\u200c\u200d\ufe0f"
_BLANK = _JOINERS + " "
# Soft hyphen, direction marks, word joiner, byte order mark: they stand inside words, so no space for them.
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200e\u200f\u2060\ufeff"))


@dataclass(frozen=True, slots=True)
class Context:
    """The turns of a conversation so far, oldest first: at least one, none empty."""

    turns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.turns or not all(self.turns):
            raise InputError("the context is empty", fix="Give at least one turn of text")

    @classmethod
    def of(cls, value: str | Iterable[str] | Context) -> Context:
        """From a text (one turn), a list of turns, or a context. Empty turns are left out.

        Raises InputError where no text is left or a turn is not a string.
        """
        if isinstance(value, Context):
            return value
        if not isinstance(value, Iterable):
            raise InputError(f"a context must be text or a list of turns, not {type(value).__name__}")
        turns = [value] if isinstance(value, str) else list(value)
        for turn in turns:
            if not isinstance(turn, str):
                raise InputError(f"a turn must be text, not {type(turn).__name__}")
        return cls(tuple(cleaned for turn in turns if (cleaned := clean_text(turn))))

    @property
    def last(self) -> str:
        return self.turns[-1]


@dataclass(frozen=True, slots=True)
class Label:
    """An emotion, intent or topic, given by a corpus (probability 1) or predicted."""

    kind: LabelKind
    name: str
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a candidate was said: `turn` counts from 1 within the conversation."""

    corpus: str
    conversation: str
    turn: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible reply. `text` is what people see: labels are never inside it."""

    id: str
    text: str
    pool: str
    labels: tuple[Label, ...] = ()
    provenance: Provenance | None = None

    def label(self, kind: LabelKind) -> str | None:
        """Name of the first label of this kind."""
        return next((label.name for label in self.labels if label.kind == kind), None)


class Hits(NamedTuple):
    """Result of a search: both (queries, k'), best first, k' = min(k, allowed rows)."""

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One place of a ranking; `rank` counts from 1."""

    candidate: Candidate
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns the score of a first place into a probability: how often the best of a hundred candidates was the
    true reply when it had this score. Fitted for each encoder on held-out pairs (logistic regression)."""

    slope: float
    intercept: float

    def probability(self, score: float) -> float:
        return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, self.slope * score + self.intercept))))


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Ranked]):
    """Candidates for one context, best first. `confidence` is the calibrated probability of the first
    one (see Calibration), None where the encoder was never calibrated."""

    context: Context
    places: tuple[Ranked, ...]
    confidence: float | None = None
    refused: int = 0
    """How many candidates that would stand among these were left out, since they may not be said."""

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Ranked: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Ranked]: ...
    def __getitem__(self, index: int | slice) -> Ranked | Sequence[Ranked]:
        return self.places[index]

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.places)


@dataclass(frozen=True, slots=True)
class Response:
    """One reply to a context, and what is known about it."""

    text: str
    source: Source
    confidence: float | None
    candidate: Candidate | None = None
    ranking: Ranking | None = None
    labels: tuple[Label, ...] = ()
    """The user's predicted labels, most probable first; empty where no labeler is at hand."""
    note: str = ""
    """What a caller should know, such as that nothing in the pool fitted well."""


@runtime_checkable
class Encoder(Protocol):
    """Turns contexts and candidates into unit vectors of one space."""

    @property
    def dim(self) -> int: ...
    @property
    def fingerprint(self) -> str:
        """Weights, tokenizer and prepend setting, in one short string."""
        ...

    @property
    def calibration(self) -> Calibration | None: ...

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors: ...
    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors: ...


class VectorIndex(Protocol):
    """Knows numbers only. Row i is the i-th vector added, whatever was removed since."""

    @property
    def dim(self) -> int: ...
    @property
    def count(self) -> int: ...
    def search(self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None = None) -> Hits:
        """The k' = min(k, allowed rows) best rows of each query, best first, never a -1 id.

        `allowed` is a mask over the rows: the filter is applied inside the search.
        """
        ...


class Labeler(Protocol):
    """Predicts up to k labels of each text, most probable first."""

    def predict(self, texts: Sequence[str], k: int = 1) -> list[tuple[Label, ...]]: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What a fallback answers with."""

    text: str
    source: Source
    note: str = ""
    details: dict[str, str] = field(default_factory=dict)


class Fallback(Protocol):
    """Answers when nothing in the pool fits. Both methods raise GenerationError where it cannot in time.

    `hints` are the best retrieved replies: a fallback may take them as examples.
    """

    @property
    def name(self) -> str: ...
    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply: ...
    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        """The reply in pieces as they are made; joined, they are the text of `reply`."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores texts as replies to a context: (texts,), larger is better."""

    def score(self, context: Context, texts: Sequence[str]) -> NDArray[np.float32]: ...
