"""Reading a fastText model file (.bin, .ftz) without fastText.

The library itself loads truncated files silently, or hangs or crashes on them; this reader checks every size
against the file before it believes it, and needs no compiled package.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ranker.errors import IntegrityError, NotFoundError
from ranker.labels.fasttext import Activation, FastTextModel, FastTextShape, Floats, Ints
from ranker.labels.text import Tokenisation

_MAGIC = 793712314
_VERSIONS = (11, 12)
_SUPERVISED = 3
_ACTIVATIONS: dict[int, Activation] = {2: "sigmoid", 3: "softmax", 4: "sigmoid"}
_LABEL_PREFIX = "__label__"
_CENTROIDS = 256
_MOST_BYTES = 16 << 30
_LONGEST_WORD = 1 << 16


def read_fasttext_file(path: Path, tokenisation: Tokenisation = "spaces") -> FastTextModel:
    """The model in a fastText file. Raises NotFoundError where there is none, and IntegrityError where the
    file is truncated, damaged, no classifier, or of a kind that cannot be answered here."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise IntegrityError(f"{path} is larger than {_MOST_BYTES >> 30} GiB")
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {path}") from None
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read ({error.strerror})") from error
    try:
        return _read(_Bytes(data), tokenisation)
    except ValueError as error:
        raise IntegrityError(
            f"{path} is not a usable fastText classifier: {error}", fix="Train or copy the file again"
        ) from error


@dataclass(slots=True)
class _Bytes:
    """A cursor over the file that never reads past its end."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> memoryview:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError("it is truncated")
        self.at += size
        return memoryview(self.data)[self.at - size : self.at]

    def integers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")))

    def flag(self) -> bool:
        (value,) = self.integers("B")
        if value > 1:
            raise ValueError("a flag is neither 0 nor 1")
        return value == 1

    def word(self) -> str:
        end = self.data.find(b"\0", self.at, self.at + _LONGEST_WORD)
        if end < 0:
            raise ValueError("a word has no end")
        return bytes(self.take(end + 1 - self.at)[:-1]).decode("utf-8", "surrogateescape")

    def floats(self, rows: int, columns: int) -> Floats:
        found = np.frombuffer(self.take(4 * rows * columns), "<f4").reshape(rows, columns)
        if not np.isfinite(found).all():
            raise ValueError("it holds numbers that are not finite")
        return found

    def codes(self, rows: int, columns: int) -> np.typing.NDArray[np.uint8]:
        return np.frombuffer(self.take(rows * columns), np.uint8).reshape(rows, columns)


def _read(data: _Bytes, tokenisation: Tokenisation) -> FastTextModel:
    magic, version = data.integers("ii")
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError("it does not begin like one")
    dim, _, _, _, _, word_ngrams, loss, model, bucket, shortest, longest, _ = data.integers("12i")
    data.take(8)
    if model != _SUPERVISED:
        raise ValueError("it holds word vectors, not a classifier")
    if loss not in _ACTIVATIONS:
        raise ValueError("hierarchical softmax is not supported: train with softmax or one-vs-all")
    shape = FastTextShape(
        dim=dim,
        bucket=bucket,
        word_ngrams=word_ngrams,
        min_chars=max(shortest, 0),
        # Old supervised models say that they have character n-grams, and have none.
        max_chars=max(longest, 0) if version > _VERSIONS[0] else 0,
        tokenisation=tokenisation,
        activation=_ACTIVATIONS[loss],
    )
    words, labels, order = _read_dictionary(data, bucket)
    is_quantised = data.flag()
    kept = bucket if order is None else len(order)
    if order is not None and not is_quantised:
        raise ValueError("it is pruned but not quantised")
    rows = _read_matrix(data, len(words) + kept, dim, is_quantised)
    output = _read_matrix(data, len(labels), dim, data.flag() and is_quantised)
    if data.at != len(data.data):
        raise ValueError("it has bytes after its end")
    buckets = None
    if order is not None:
        buckets = np.sort(order)
        rows = np.concatenate([rows[: len(words)], rows[len(words) :][np.argsort(order)]])
    return FastTextModel(shape, labels, words, rows, output, buckets)


def _read_dictionary(data: _Bytes, bucket: int) -> tuple[tuple[str, ...], tuple[str, ...], Ints | None]:
    """Words, labels, and the bucket of each kept n-gram row (None: none was pruned)."""
    size, word_count, label_count = data.integers("3i")
    _, pruned = data.integers("qq")
    if word_count < 0 or label_count < 1 or size != word_count + label_count or pruned > bucket:
        raise ValueError("its dictionary is out of range")
    entries = []
    for place in range(size):
        word = data.word()
        _, is_label = data.integers("qb")
        if is_label != (place >= word_count):
            raise ValueError("its dictionary is out of order")
        entries.append(word)
    words, labels = entries[:word_count], [name.removeprefix(_LABEL_PREFIX) for name in entries[word_count:]]
    if len(set(words)) != len(words) or len(set(labels)) != len(labels):
        raise ValueError("its dictionary repeats itself")
    if pruned < 0:
        return tuple(words), tuple(labels), None
    pairs = np.frombuffer(data.take(8 * pruned), "<i4").reshape(pruned, 2).astype(np.int64)
    order = np.full(pruned, -1, np.int64)
    if pruned:
        if pairs.min() < 0 or pairs[:, 0].max() >= bucket or pairs[:, 1].max() >= pruned:
            raise ValueError("its pruned n-grams are out of range")
        order[pairs[:, 1]] = pairs[:, 0]
        if order.min() < 0 or len(np.unique(order)) != pruned:
            raise ValueError("its pruned n-grams repeat themselves")
    return tuple(words), tuple(labels), order


def _read_matrix(data: _Bytes, rows: int, dim: int, is_quantised: bool) -> Floats:
    """A matrix of the size that the header promised, quantised ones restored to numbers."""
    if not is_quantised:
        if data.integers("qq") != (rows, dim):
            raise ValueError("a matrix is not of the size that the header says")
        return data.floats(rows, dim)
    has_norms = data.flag()
    if data.integers("qq") != (rows, dim):
        raise ValueError("a matrix is not of the size that the header says")
    (code_size,) = data.integers("i")
    parts = code_size // rows if rows else 0
    if rows < 1 or parts < 1 or parts * rows != code_size or parts > dim:
        raise ValueError("its quantisation is out of range")
    codes = data.codes(rows, parts)
    found = _read_quantiser(data, dim, codes)
    if has_norms:
        norm_codes = data.codes(rows, 1)
        found = found * _read_quantiser(data, 1, norm_codes)
    return found


def _read_quantiser(data: _Bytes, dim: int, codes: np.typing.NDArray[np.uint8]) -> Floats:
    """The rows (n, dim) that product-quantiser codes (n, parts) stand for."""
    parts = codes.shape[1]
    found_dim, found_parts, part_dim, last_dim = data.integers("4i")
    if part_dim < 1 or (found_dim, found_parts, (parts - 1) * part_dim + last_dim) != (dim, parts, dim):
        raise ValueError("its quantiser is out of range")
    if not 1 <= last_dim <= part_dim or parts != math.ceil(dim / part_dim):
        raise ValueError("its quantiser is out of range")
    centroids = data.floats(_CENTROIDS, dim).reshape(-1)
    step = _CENTROIDS * part_dim
    pieces = []
    for part in range(parts):
        width = last_dim if part == parts - 1 else part_dim
        table = centroids[part * step : part * step + _CENTROIDS * width].reshape(_CENTROIDS, width)
        pieces.append(table[codes[:, part]])
    return np.concatenate(pieces, axis=1)
