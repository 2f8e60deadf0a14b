"""fastText's supervised model, answered by numpy: word and n-gram rows averaged, one product, a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError
from ranker.labels.text import END_OF_LINE, Tokenisation, tokens_of
from ranker.types import Label, LabelKind

Activation = Literal["softmax", "sigmoid"]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_CHUNK = 4096
_LONGEST_NGRAM = 64
_FNV_START, _FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
_NGRAM_PRIME = np.uint64(116049371)


@dataclass(frozen=True, slots=True)
class FastTextShape:
    """How features are made. Character n-grams are off where `max_chars` is 0.

    Raises ValueError for numbers with which no model can answer, or not in bounded time.
    """

    dim: int
    bucket: int
    word_ngrams: int = 1
    min_chars: int = 0
    max_chars: int = 0
    tokenisation: Tokenisation = "words"
    activation: Activation = "softmax"

    def __post_init__(self) -> None:
        longest = max(self.word_ngrams, self.max_chars)
        if self.dim < 1 or self.bucket < 0 or self.word_ngrams < 1 or longest > _LONGEST_NGRAM:
            raise ValueError("its settings are out of range")
        if self.bucket == 0 and (self.word_ngrams > 1 or self.max_chars > 0):
            raise ValueError("it has n-grams but no bucket for them")


@dataclass(frozen=True, slots=True)
class FastTextModel:
    """The numbers of a model.

    `rows` is (words + kept n-grams, dim): first a row per word, then one per kept bucket. `buckets` says
    which buckets are kept, in ascending order; None: all. `output` is (labels, dim).
    """

    shape: FastTextShape
    labels: tuple[str, ...]
    words: tuple[str, ...]
    rows: Floats
    output: Floats
    buckets: Ints | None = None


class _Tokens(NamedTuple):
    """The tokens of some texts, end of line included: `place` is into `distinct`, `owner` is the text."""

    distinct: list[str]
    place: Ints
    owner: Ints


class FastTextLabeler:
    """Predicts labels of one kind as fastText does. Threads may share it: nothing changes once it is made."""

    def __init__(self, kind: LabelKind, model: FastTextModel) -> None:
        self.kind = kind
        self.model = model
        self._row_of = {word: row for row, word in enumerate(model.words)}
        self._word_hashes = hash_all([_bytes(word) for word in model.words])

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that it can predict, in the columns' order of `probabilities`."""
        return self.model.labels

    def predict(self, texts: Sequence[str], k: int = 1) -> list[tuple[Label, ...]]:
        """Up to k labels of each text, most probable first; none for a text without a token.

        Raises InputError where k is below 1 or a text is not a string.
        """
        return best_labels(self.kind, self.names, self.probabilities(texts), k)

    def probabilities(self, texts: Sequence[str]) -> Floats:
        """(texts, labels), each row a distribution; all zero for a text without a token."""
        check_texts(texts)
        parts = [self._chunk(texts[start : start + _CHUNK]) for start in range(0, len(texts), _CHUNK)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.names)), np.float32)

    def _chunk(self, texts: Sequence[str]) -> Floats:
        shape = self.model.shape
        lines = [tokens_of(text, shape.tokenisation) for text in texts]
        empty = np.fromiter((not line for line in lines), np.bool_, len(lines))
        tokens = _tokens(lines)
        word_rows = np.asarray([self._row_of.get(token, -1) for token in tokens.distinct], np.int64)
        sums = _RowSums(self.model.rows, len(texts))
        rows = word_rows[tokens.place]
        sums.add(tokens.owner[rows >= 0], rows[rows >= 0])
        if shape.max_chars > 0:
            sums.add(*self._char_ngrams(tokens))
        if shape.word_ngrams > 1:
            hashes = self._hashes(tokens.distinct, word_rows)
            signed = hashes.view(np.int32).astype(np.int64).view(np.uint64)  # as fastText widens them
            self._add_word_ngrams(sums, signed[tokens.place], tokens.owner)
        hidden, seen = sums.mean()
        found = _activate(hidden @ self.model.output.T, shape.activation)
        found[empty | ~seen] = 0.0
        return found

    def _hashes(self, distinct: list[str], word_rows: Ints) -> NDArray[np.uint32]:
        """fastText's hash of each token; those of known words are at hand."""
        known = word_rows >= 0
        hashes = np.empty(len(distinct), np.uint32)
        hashes[known] = self._word_hashes[word_rows[known]]
        hashes[~known] = hash_all([_bytes(distinct[place]) for place in np.flatnonzero(~known)])
        return hashes

    def _add_word_ngrams(self, sums: _RowSums, hashes: NDArray[np.uint64], owner: Ints) -> None:
        """Rows of the 2-grams, 3-grams, ... of each text: a running hash over the tokens' hashes."""
        running = hashes
        for size in range(1, self.model.shape.word_ngrams):
            running = running[:-1] * _NGRAM_PRIME + hashes[size:]
            inside = owner[: len(running)] == owner[size:]
            bucket = (running[inside] % np.uint64(self.model.shape.bucket)).astype(np.int64)
            sums.add(*self._rows_of_buckets(owner[: len(running)][inside], bucket))

    def _char_ngrams(self, tokens: _Tokens) -> tuple[Ints, Ints]:
        """The texts and rows of the character n-grams of all tokens."""
        shape = self.model.shape
        pieces = [char_ngrams(token, shape.min_chars, shape.max_chars) for token in tokens.distinct]
        counts = np.asarray([len(piece) for piece in pieces], np.int64)
        bucket = (hash_all(list(chain.from_iterable(pieces))) % np.uint32(shape.bucket)).astype(np.int64)
        lengths = counts[tokens.place]
        starts = (np.cumsum(counts) - counts)[tokens.place]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self._rows_of_buckets(
            np.repeat(tokens.owner, lengths), bucket[np.repeat(starts, lengths) + within]
        )

    def _rows_of_buckets(self, owner: Ints, bucket: Ints) -> tuple[Ints, Ints]:
        """Owners and rows of those buckets that the model keeps."""
        kept = self.model.buckets
        if kept is None:
            return owner, bucket + len(self.model.words)
        place = np.searchsorted(kept, bucket)
        there = place < len(kept)
        there[there] = kept[place[there]] == bucket[there]
        return owner[there], place[there] + len(self.model.words)


@dataclass(slots=True)
class _RowSums:
    """The sum and number of the rows of each text."""

    rows: Floats
    texts: int
    sums: Floats = field(init=False)
    counts: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros((self.texts, self.rows.shape[1]), np.float32)
        self.counts = np.zeros(self.texts, np.int64)

    def add(self, owner: Ints, rows: Ints) -> None:
        """Add rows to the texts that own them; `owner` is ascending."""
        if owner.size:
            starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
            self.sums[owner[starts]] += np.add.reduceat(self.rows[rows], starts, axis=0)
            self.counts += np.bincount(owner, minlength=self.texts)

    def mean(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The mean row of each text, and whether it had any."""
        counts = np.maximum(self.counts, 1).astype(np.float32)
        return np.asarray(self.sums / counts[:, None], np.float32), self.counts > 0


def check_texts(texts: Sequence[str]) -> None:
    """Raise InputError unless `texts` is a sequence of strings, and not one string."""
    if isinstance(texts, str):
        raise InputError("texts must be a list of strings, not one string")
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"a text must be a string, not {type(text).__name__}")


def best_labels(
    kind: LabelKind, names: Sequence[str], probabilities: Floats, k: int
) -> list[tuple[Label, ...]]:
    """The k best columns of each row as labels; none for a row of zeros. Equal ones keep the names' order."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}")
    k = min(k, len(names))
    if k == 1:
        order = probabilities.argmax(axis=1)[:, None]
    else:
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(probabilities, order, axis=1).tolist()
    return [
        tuple(Label(kind, names[column], value) for column, value in zip(columns, row, strict=True))
        if row[0] > 0
        else ()
        for columns, row in zip(order.tolist(), values, strict=True)
    ]


def hash_all(words: Sequence[bytes]) -> NDArray[np.uint32]:
    """fastText's hash of each word: FNV-1a of 32 bits, with bytes above 127 sign-extended."""
    hashes = np.full(len(words), _FNV_START, np.uint32)
    if not words:
        return hashes
    lengths = np.asarray([len(word) for word in words])
    order = np.argsort(-lengths, kind="stable")  # longest first: those that still have a byte are a prefix
    flat = np.frombuffer(b"".join(words[place] for place in order), np.int8).astype(np.int32).view(np.uint32)
    lengths = lengths[order]
    starts = np.cumsum(lengths) - lengths
    running = hashes.copy()
    for position in range(int(lengths[0])):
        alive = int(np.searchsorted(-lengths, -position))
        running[:alive] = (running[:alive] ^ flat[starts[:alive] + position]) * _FNV_PRIME
    hashes[order] = running
    return hashes


def char_ngrams(token: str, shortest: int, longest: int) -> list[bytes]:
    """fastText's character n-grams of a token between `<` and `>`; the end of line has none."""
    if token == END_OF_LINE:
        return []
    marked = f"<{token}>"
    found = []
    for start in range(len(marked)):
        for size in range(max(shortest, 1), min(longest, len(marked) - start) + 1):
            if size > 1 or 0 < start < len(marked) - 1:
                found.append(_bytes(marked[start : start + size]))
    return found


def _tokens(lines: list[list[str]]) -> _Tokens:
    places: dict[str, int] = {}
    flat = [places.setdefault(token, len(places)) for line in lines for token in chain(line, (END_OF_LINE,))]
    lengths = [len(line) + 1 for line in lines]
    return _Tokens(list(places), np.asarray(flat, np.int64), np.repeat(np.arange(len(lines)), lengths))


def _activate(scores: Floats, activation: Activation) -> Floats:
    if activation == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-scores)), np.float32)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


def _bytes(word: str) -> bytes:
    """As fastText saw it: a model file may hold words that are not UTF-8."""
    return word.encode("utf-8", "surrogateescape")
