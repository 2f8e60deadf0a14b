"""One run of candidates on disk: texts, label columns, keys and an index, all memory-mapped.

Nothing is parsed at opening: a candidate is decoded when its row is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.bundle.manifest import PoolNote, SegmentNote
from ranker.errors import InputError, IntegrityError
from ranker.index import (
    APPROXIMATE,
    Kind,
    as_kind,
    build_index,
    choose_kind,
    load_index,
    measured_recall,
    save_index,
    stand_ins,
)
from ranker.storage import map_array, write_array
from ranker.types import Candidate, Hits, Label, LabelKind, Progress, Provenance, Vectors

LABEL_KINDS: tuple[LabelKind, ...] = ("emotion", "intent", "topic")
_TEXTS = "candidates.jsonl"
_OFFSETS = "offsets.npy"
_COLUMNS = "columns.npy"
_KEYS = "keys.npy"
_NONE = -1
_SAMPLE = 512


class Segment:
    """An opened segment. Row numbers are its own, from 0."""

    def __init__(self, folder: Path, note: SegmentNote, pools: Sequence[PoolNote]) -> None:
        """Map the files of `note` in `folder`. Raises IntegrityError where they do not fit together."""
        at = folder / note.prefix
        self.note = note
        self.index = load_index(folder, note.index, note.prefix)
        self._texts = np.memmap(f"{at}{_TEXTS}", np.uint8, "r").data
        self._offsets = map_array(Path(f"{at}{_OFFSETS}"), np.int64, ndim=1)
        self._columns = map_array(Path(f"{at}{_COLUMNS}"), np.int16, ndim=2)
        self._keys = map_array(Path(f"{at}{_KEYS}"), np.uint64, ndim=2)
        self._names = ([pool.name for pool in pools], note.emotions, note.intents, note.topics)
        rows = {self.index.count, len(self._offsets) - 1, self._columns.shape[1], self._keys.shape[1]}
        if rows != {note.count}:
            raise IntegrityError(f"the files {at}* do not have {note.count} rows each")

    def candidate(self, row: int) -> Candidate:
        start, stop = self._offsets[row : row + 2]
        return _decoded(bytes(self._texts[start:stop]))

    def matching(self, column: int, names: Iterable[str]) -> NDArray[np.bool_]:
        """Rows whose pool (column 0) or label (1 + place in LABEL_KINDS) is one of `names`."""
        known = self._names[column]
        found = np.zeros(self.note.count, np.bool_)
        for code, name in enumerate(known):
            if name in names:
                found |= self._columns[column] == code
        return found

    def rows_of(self, values: Iterable[str], *, texts: bool) -> list[int]:
        """Rows whose id (or text) is one of `values`."""
        wanted = set(values)
        keys = np.fromiter((_key(value) for value in wanted), np.uint64, len(wanted))
        rows = np.flatnonzero(np.isin(self._keys[1 if texts else 0], keys))
        found = ((int(row), self.candidate(int(row))) for row in rows)
        return [row for row, candidate in found if (candidate.text if texts else candidate.id) in wanted]

    def search(self, vectors: Vectors, k: int, allowed: NDArray[np.bool_] | None) -> Hits:
        return self.index.search(vectors, k, allowed)


def write_segment(
    folder: Path,
    prefix: str,
    candidates: Sequence[Candidate],
    vectors: Vectors,
    *,
    pools: Sequence[PoolNote],
    kind: str,
    sample: Vectors | None,
    progress: Progress | None,
) -> SegmentNote:
    """Index `candidates` and write everything into `folder`; `kind` "auto" chooses by size.

    Raises InputError for candidates that cannot be stored, and OSError as the disk does.
    """
    chosen, reason = _chosen(kind, *vectors.shape)
    names = [{note.name: code for code, note in enumerate(pools)}, {}, {}, {}]
    columns = np.full((1 + len(LABEL_KINDS), len(candidates)), _NONE, np.int16)
    keys = np.empty((2, len(candidates)), np.uint64)
    offsets = np.zeros(len(candidates) + 1, np.int64)
    with (folder / f"{prefix}{_TEXTS}").open("wb") as file:
        for row, candidate in enumerate(candidates):
            offsets[row + 1] = offsets[row] + file.write(_encoded(candidate))
            keys[:, row] = _key(candidate.id), _key(candidate.text)
            columns[0, row] = names[0][candidate.pool]
            for column, label_kind in enumerate(LABEL_KINDS, start=1):
                if name := candidate.label(label_kind):
                    columns[column, row] = names[column].setdefault(name, len(names[column]))
    write_array(folder / f"{prefix}{_OFFSETS}", offsets)
    write_array(folder / f"{prefix}{_COLUMNS}", columns)
    write_array(folder / f"{prefix}{_KEYS}", keys)

    recall = 1.0
    if chosen in APPROXIMATE:
        # Tuned on one half of the sample, measured on the other.
        sample = stand_ins(vectors) if sample is None or len(sample) < 2 else sample[:_SAMPLE]
        index = build_index(chosen, vectors, progress, sample=sample[::2])
        recall = measured_recall(index, vectors, sample[1::2])
    else:
        index = build_index(chosen, vectors, progress)
    save_index(index, folder, prefix)
    return SegmentNote(
        prefix, len(candidates), index.parameters, reason, round(recall, 4), *map(tuple, names[1:])
    )


def _chosen(kind: str, count: int, dim: int) -> tuple[Kind, str]:
    return choose_kind(count, dim) if kind == "auto" else (as_kind(kind), "It was asked for.")


def _key(value: str) -> int:
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _encoded(candidate: Candidate) -> bytes:
    """One line of JSON. A list, not a table, because a million rows repeat no field names."""
    origin = candidate.provenance
    row = [
        candidate.id,
        candidate.text,
        candidate.pool,
        [[label.kind, label.name, label.probability] for label in candidate.labels],
        [origin.corpus, origin.conversation, origin.turn] if origin else None,
    ]
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        raise InputError(
            f"the candidate {candidate.id!r} holds half of a character (a lone surrogate)",
            fix="Clean its text with ranker.types.clean_text",
        ) from None


def _decoded(line: bytes) -> Candidate:
    id_, text, pool, labels, origin = json.loads(line)
    return Candidate(
        id_, text, pool, tuple(Label(*label) for label in labels), Provenance(*origin) if origin else None
    )
