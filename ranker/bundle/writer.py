"""Writing bundles: whole, or a new version that shares the unchanged files of the old one.

Every writer holds the bundle's lock, builds in a staged folder, writes the manifest last and publishes by one
rename: a crash at any moment leaves the old version answering.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.bundle.bundle import REMOVED, Bundle
from ranker.bundle.manifest import FORMAT, Manifest, PoolNote, SegmentNote, file_notes, write_manifest
from ranker.bundle.segment import write_segment
from ranker.errors import InputError
from ranker.index import as_kind
from ranker.storage import exclusive, publish, staged_folder, write_array
from ranker.types import Candidate, Progress, Vectors

_MAX_SEGMENTS = 5
_SMALL_TAIL = 10_000
_LARGE_SHARE = 0.25
"""Beyond this share of added or removed rows, the index is built anew (from the stored vectors)."""


def write_bundle(
    root: Path,
    *,
    name: str,
    candidates: Sequence[Candidate],
    vectors: Vectors,
    encoder_name: str,
    encoder_fingerprint: str,
    pools: Sequence[PoolNote],
    kind: str | None = None,
    sample: Vectors | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Index `candidates` with their `vectors` (one row each) and make that the current version at `root`.

    `kind` None chooses by size. `sample` are vectors of some contexts, to tune and measure an approximate
    index on; without them, stand-ins are made. `progress` follows the building of the index.

    Raises InputError for candidates, vectors or pools that do not fit together, and StorageError where
    another process writes the bundle or the disk refuses; the old version then stays.
    """
    kind = "auto" if kind is None else as_kind(kind)
    _check(candidates, vectors, pools)
    manifest = Manifest(
        format=FORMAT,
        name=name,
        created="",
        package_version="",
        encoder_name=encoder_name,
        encoder_fingerprint=encoder_fingerprint,
        dim=int(vectors.shape[1]),
        count=0,
        removed=0,
        kind=kind,
        pools=tuple(pools),
        segments=(),
        files=(),
    )
    with exclusive(root, "writing"), staged_folder(root) as staged:
        segment = write_segment(
            staged,
            _prefix(),
            candidates,
            vectors,
            pools=pools,
            kind=kind,
            sample=sample,
            progress=progress,
        )
        _finish(staged, root, manifest, (segment,), removed=np.zeros(0, np.bool_))
    return Bundle.open(root)


def add_candidates(
    root: Path,
    candidates: Sequence[Candidate],
    vectors: Vectors,
    *,
    encoder_fingerprint: str,
    pools: Sequence[PoolNote] = (),
    progress: Progress | None = None,
) -> Bundle:
    """Add candidates to a bundle as a segment of their own; nothing else is encoded or indexed again, until
    the added rows are many: then one index is made of all.

    `pools` are the notes of pools that the bundle does not have yet. Raises InputError for an id that it has,
    else as `Bundle.open` and `write_bundle` do.
    """
    with exclusive(root, "writing"):
        old = Bundle.open(root, fingerprint=encoder_fingerprint)
        known = {note.name for note in old.manifest.pools}
        pools = (*old.manifest.pools, *(note for note in pools if note.name not in known))
        _check(candidates, vectors, pools)
        if vectors.shape[1] != old.dim:
            raise InputError(f"the vectors have {vectors.shape[1]} dimensions, the index has {old.dim}")
        if taken := old.rows_of({candidate.id for candidate in candidates}):
            raise InputError(
                f"the index {old.manifest.name!r} already has a candidate {old.candidate(taken[0]).id!r}"
            )
        first = old.manifest.segments[0].count
        tail = old.rows - first + len(candidates)
        if tail > max(_SMALL_TAIL, first * _LARGE_SHARE):
            shared = 0
        elif len(old.segments) >= _MAX_SEGMENTS:
            shared = 1
        else:
            shared = len(old.segments)
        manifest = replace(old.manifest, pools=pools)
        _rewrite(old, root, manifest, old.kept_rows(), shared, candidates, vectors, progress)
    return Bundle.open(root)


def remove_candidates(
    root: Path,
    *,
    ids: Collection[str] = (),
    texts: Collection[str] = (),
    progress: Progress | None = None,
) -> Bundle:
    """Remove the candidates with these ids or exactly these texts. They are masked out; one index is made of
    the rest once they are many.

    Raises InputError where none matches and where none would be left, else as `Bundle.open` and
    `write_bundle` do.
    """
    with exclusive(root, "writing"):
        old = Bundle.open(root)
        rows = {*old.rows_of(ids), *old.rows_of_texts(texts)}
        if not rows:
            raise InputError(f"no candidate of the index {old.manifest.name!r} has such an id or text")
        kept = np.setdiff1d(old.kept_rows(), sorted(rows))
        if not kept.size:
            raise InputError(f"this would remove every candidate of the index {old.manifest.name!r}")
        masked = old.rows - kept.size <= old.rows * _LARGE_SHARE
        shared = len(old.segments) if masked else 0
        _rewrite(old, root, old.manifest, kept, shared, (), np.empty((0, old.dim), np.float32), progress)
    return Bundle.open(root)


def _rewrite(
    old: Bundle,
    root: Path,
    manifest: Manifest,
    kept: NDArray[np.int64],
    shared: int,
    candidates: Sequence[Candidate],
    vectors: Vectors,
    progress: Progress | None,
) -> None:
    """Publish the first `shared` segments of `old` as they are, with all but the `kept` rows masked, and one
    new segment of the kept rows of the others and the added candidates."""
    border = sum(note.count for note in old.manifest.segments[:shared])
    moved = [int(row) for row in kept[kept >= border]]
    candidates = [*(old.candidate(row) for row in moved), *candidates]
    with staged_folder(root) as staged:
        segments = old.manifest.segments[:shared]
        _share_files(old.folder, staged, [note.prefix for note in segments])
        if candidates:
            added = write_segment(
                staged,
                _prefix(),
                candidates,
                np.vstack((old.vectors(moved), vectors)),
                pools=manifest.pools,
                kind="auto" if shared else manifest.kind,
                sample=None,
                progress=progress,
            )
            segments = (*segments, added)
        removed = np.ones(border, np.bool_)
        removed[kept[kept < border]] = False
        _finish(staged, root, manifest, segments, removed)


def _share_files(source: Path, target: Path, prefixes: Sequence[str]) -> None:
    """The same files in another folder, as links where the file system has them."""
    for path in source.iterdir():
        if path.name.startswith(tuple(prefixes)):
            try:
                os.link(path, target / path.name)
            except OSError:
                shutil.copy2(path, target / path.name)


def _finish(
    staged: Path,
    root: Path,
    manifest: Manifest,
    segments: tuple[SegmentNote, ...],
    removed: NDArray[np.bool_],
) -> None:
    """Write what remains, the manifest last, and publish. `removed` covers the first rows, maybe not all."""
    rows = sum(note.count for note in segments)
    gone = int(np.count_nonzero(removed))
    if gone:
        write_array(staged / REMOVED, np.concatenate((removed, np.zeros(rows - len(removed), np.bool_))))
    finished = replace(
        manifest,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        package_version=version("response-ranker"),
        count=rows - gone,
        removed=gone,
        segments=segments,
        files=file_notes(staged),
    )
    write_manifest(staged, finished)
    publish(staged, root)


def _prefix() -> str:
    """Unlike that of any other segment: a new version holds the files of old ones under their names."""
    return f"s{secrets.token_hex(4)}-"


def _check(candidates: Sequence[Candidate], vectors: Vectors, pools: Sequence[PoolNote]) -> None:
    if not candidates:
        raise InputError("there are no candidates to index")
    if vectors.ndim != 2 or len(vectors) != len(candidates):
        raise InputError(f"{len(candidates)} candidates need as many vectors, not {vectors.shape}")
    names = {note.name for note in pools}
    seen: set[str] = set()
    for candidate in candidates:
        if candidate.pool not in names:
            raise InputError(
                f"the candidate {candidate.id!r} is of a pool without a note: {candidate.pool!r}"
            )
        if candidate.id in seen:
            raise InputError(f"two candidates have the id {candidate.id!r}")
        seen.add(candidate.id)
