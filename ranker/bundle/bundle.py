"""An opened bundle: candidates, filters and search over all its segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.bundle.manifest import (
    MANIFEST,
    Manifest,
    Verify,
    read_manifest,
    rebuild_command,
    verify_files,
)
from ranker.bundle.segment import LABEL_KINDS, Segment
from ranker.errors import IntegrityError, MismatchError, NotFoundError
from ranker.index import merged
from ranker.storage import current, map_array
from ranker.types import Candidate, Hits, LabelKind, Vectors

REMOVED = "removed.npy"


class Bundle:
    """Index + candidates + manifest, read-only and safe to share between threads.

    A row is the place of a candidate in this version of the bundle, from 0 to `rows`; adding and removing
    candidates makes a new version and may renumber them. Names that last are the candidates' ids.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Map the files of `folder`, which must have been verified: use `Bundle.open`."""
        self.folder = folder
        self.manifest = manifest
        self.segments = [Segment(folder, note, manifest.pools) for note in manifest.segments]
        self._starts = np.cumsum([0, *(note.count for note in manifest.segments)])
        self._kept: NDArray[np.bool_] | None = None
        if manifest.removed:
            self._kept = ~map_array(folder / REMOVED, np.bool_, ndim=1)
            if self._kept.shape != (self.rows,):
                raise IntegrityError(f"{folder / REMOVED} does not have {self.rows} rows")

    @classmethod
    def open(cls, root: Path, *, fingerprint: str | None = None, verify: Verify = "cached") -> Bundle:
        """The current version of the bundle at `root`, every file checked before it is parsed.

        `fingerprint` is that of the encoder at hand. Raises NotFoundError where there is no bundle,
        IntegrityError where it is damaged or of another format, MismatchError where another encoder made it.
        """
        while True:
            folder = _version(root)
            try:
                return cls._opened(folder, root, fingerprint, verify)
            except (IntegrityError, OSError) as error:
                if _version(root) != folder:
                    continue  # a writer replaced the version while it was being opened
                if isinstance(error, OSError):
                    fix = rebuild_command([root.name])
                    raise IntegrityError(
                        f"the index {root.name!r} cannot be read ({error})", fix=fix
                    ) from error
                raise

    @classmethod
    def _opened(cls, folder: Path, root: Path, fingerprint: str | None, verify: Verify) -> Bundle:
        manifest = read_manifest(folder, root.name)
        if fingerprint is not None:
            _require_encoder(manifest, fingerprint)
        verify_files(folder, manifest, root, verify)
        return cls(folder, manifest)

    def require_encoder(self, fingerprint: str) -> None:
        """Raises MismatchError unless the encoder with this fingerprint made the bundle."""
        _require_encoder(self.manifest, fingerprint)

    @property
    def rows(self) -> int:
        """Rows, removed ones included: the length of a mask."""
        return int(self._starts[-1])

    @property
    def count(self) -> int:
        """Candidates that can be found."""
        return self.manifest.count

    @property
    def dim(self) -> int:
        return self.manifest.dim

    def candidate(self, row: int) -> Candidate:
        """The candidate at a row, decoded now. Raises IndexError beyond the last row."""
        segment, row = self._located(row)
        return segment.candidate(row)

    def vectors(self, rows: Iterable[int]) -> Vectors:
        """The stored vectors of these rows: (rows, dim), a copy. Raises IndexError beyond the last row."""
        wanted = np.fromiter(rows, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.rows:
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {self.rows}")
        found = np.empty((wanted.size, self.dim), np.float32)
        places = np.searchsorted(self._starts, wanted, side="right") - 1
        for place, segment in enumerate(self.segments):
            inside = places == place
            found[inside] = segment.index.vectors[wanted[inside] - self._starts[place]]
        return found

    def rows_of(self, ids: Collection[str]) -> list[int]:
        """Rows of the candidates with these ids, in order; unknown and removed ids have none."""
        return self._rows_of(ids, texts=False)

    def rows_of_texts(self, texts: Collection[str]) -> list[int]:
        """Rows of the candidates with exactly these texts, in order."""
        return self._rows_of(texts, texts=True)

    def labels(self, kind: LabelKind) -> tuple[str, ...]:
        """Names of all labels of this kind that a filter can ask for, sorted."""
        place = LABEL_KINDS.index(kind)
        notes = self.manifest.segments
        return tuple(
            sorted({name for note in notes for name in (note.emotions, note.intents, note.topics)[place]})
        )

    def mask(
        self,
        *,
        pools: Collection[str] | None = None,
        emotions: Collection[str] | None = None,
        intents: Collection[str] | None = None,
        topics: Collection[str] | None = None,
        licences: Collection[str] | None = None,
        commercial_only: bool = False,
    ) -> NDArray[np.bool_] | None:
        """Rows that pass every filter given (any of the names in each), or None where none is given.

        A name that the bundle does not know matches no row: `labels` and the manifest tell which it knows.
        """
        suited = {
            note.name
            for note in self.manifest.pools
            if (pools is None or note.name in pools)
            and (licences is None or note.licence in licences)
            and (note.commercial_use or not commercial_only)
        }
        every_pool = len(suited) == len(self.manifest.pools)
        wanted = [None if every_pool else suited, emotions, intents, topics]
        if all(names is None for names in wanted):
            return None
        parts = []
        for segment in self.segments:
            part = np.ones(segment.note.count, np.bool_)
            for column, names in enumerate(wanted):
                if names is not None:
                    part &= segment.matching(column, names)
            parts.append(part)
        return np.concatenate(parts)

    def search(self, vectors: Vectors, k: int, allowed: NDArray[np.bool_] | None = None) -> Hits:
        """The k' = min(k, allowed candidates) best rows for each vector, never a removed one."""
        if self._kept is not None:
            allowed = self._kept if allowed is None else allowed & self._kept
        if len(self.segments) == 1:
            return self.segments[0].search(vectors, k, allowed)
        found = []
        for segment, start in zip(self.segments, self._starts[:-1], strict=True):
            part = None if allowed is None else allowed[start : start + segment.note.count]
            hits = segment.search(vectors, k, part)
            found.append(Hits(hits.scores, hits.ids + start))
        return merged(found, k)

    def kept_rows(self) -> NDArray[np.int64]:
        """Rows that were not removed, in order."""
        return np.arange(self.rows) if self._kept is None else np.flatnonzero(self._kept)

    def _located(self, row: int) -> tuple[Segment, int]:
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        place = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.segments[place], int(row - self._starts[place])

    def _rows_of(self, values: Collection[str], *, texts: bool) -> list[int]:
        found: list[int] = []
        for segment, start in zip(self.segments, self._starts[:-1], strict=True):
            found += (int(start) + row for row in segment.rows_of(values, texts=texts))
        kept = self._kept
        return found if kept is None else [row for row in found if kept[row]]


def _require_encoder(manifest: Manifest, fingerprint: str) -> None:
    if fingerprint != manifest.encoder_fingerprint:
        raise MismatchError(
            f"the index {manifest.name!r} was made by the encoder {manifest.encoder_name!r} "
            f"({manifest.encoder_fingerprint}), not by the one at hand ({fingerprint})",
            fix=rebuild_command(pool.name for pool in manifest.pools),
        )


def _version(root: Path) -> Path:
    """The folder of the current version: where the pointer leads, or `root` where it is one itself."""
    try:
        folder = current(root)
    except IntegrityError as error:
        raise IntegrityError(error.message, fix=rebuild_command([root.name])) from error
    if folder is not None:
        return folder
    if (root / MANIFEST).is_file():
        return root
    raise NotFoundError(
        f"there is no index at {root}", fix=f"Build it: ranker build-index --pool {root.name}"
    )
