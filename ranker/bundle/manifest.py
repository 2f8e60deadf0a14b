"""The manifest: what a bundle is, and the hash of every file in it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError, StorageError
from ranker.index import IndexParameters
from ranker.storage import read_json, sha256_of, write_json

FORMAT = 1
MANIFEST = "manifest.json"
_VERIFIED = ".verified.json"
_ALWAYS_HASHED = 64 << 20
"""Bundles up to this many bytes are hashed at every opening: that takes less than a tenth of a second."""
_SETTLED = 2 * 10**9
"""Nanoseconds after which a file's time stamp tells a later change apart, on any file system."""

Verify = Literal["full", "cached"]


@dataclass(frozen=True, slots=True)
class PoolNote:
    """The essentials of a pool's card, as they were when the bundle was written."""

    name: str
    title: str
    licence: str
    commercial_use: bool
    is_sample: bool


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """One run of rows with an index of its own. Its files' names start with `prefix`.

    `recall` was measured against exact search, at 10 hits; it is 1 for an exact kind. The names are
    those that the codes of the columns stand for.
    """

    prefix: str
    count: int
    index: IndexParameters
    reason: str
    recall: float
    emotions: tuple[str, ...]
    intents: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileNote:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`count` is the number of candidates that can be found: rows minus `removed`."""

    format: int
    name: str
    created: str
    package_version: str
    encoder_name: str
    encoder_fingerprint: str
    dim: int
    count: int
    removed: int
    kind: str
    """The kind of index asked for; "auto" where it is chosen by size."""
    pools: tuple[PoolNote, ...]
    segments: tuple[SegmentNote, ...]
    files: tuple[FileNote, ...]


def rebuild_command(pools: Iterable[str]) -> str:
    return f"Rebuild it: ranker build-index {' '.join(f'--pool {name}' for name in pools)}"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, sealed with a hash of its own: it is the last file of a bundle."""
    body = asdict(manifest)
    write_json(folder / MANIFEST, {"seal": _seal(body), **body})


def read_manifest(folder: Path, name: str) -> Manifest:
    """The manifest of the bundle called `name`.

    Raises IntegrityError where it is missing, damaged, or of another format.
    """
    fix = rebuild_command([name])
    path = folder / MANIFEST
    try:
        body = read_json(path)
    except IntegrityError as error:
        raise IntegrityError(f"the index {name!r} is damaged: {error.message}", fix=fix) from error
    version = body.get("format") if isinstance(body, dict) else None
    if not isinstance(version, int):
        raise IntegrityError(f"{path} is not the manifest of an index", fix=fix)
    if version != FORMAT:
        age = "a newer" if version > FORMAT else "an older"
        raise IntegrityError(
            f"the index {name!r} has format {version}, of {age} version of ranker (this one: {FORMAT})",
            fix=fix,
        )
    if body.pop("seal", None) != _seal(body):
        raise IntegrityError(f"the index {name!r} is damaged: {path} does not match its seal", fix=fix)
    try:
        return from_table(Manifest, body, source=str(path))
    except ConfigError as error:
        raise IntegrityError(f"the index {name!r} is damaged: {error.message}", fix=fix) from error


def file_notes(folder: Path) -> tuple[FileNote, ...]:
    """Name, size and hash of every file in a folder but the manifest."""
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST)
    return tuple(FileNote(path.name, path.stat().st_size, sha256_of(path)) for path in files)


def verify_files(folder: Path, manifest: Manifest, root: Path, verify: Verify) -> None:
    """Check size and hash of every file, before any parser sees one.

    "cached" skips the hash of a file whose inode, size and time stamp are those of an earlier full check,
    which is noted beside the bundle; small bundles are hashed all the same. Raises IntegrityError.
    """
    fix = rebuild_command(note.name for note in manifest.pools)
    for note in manifest.files:
        path = folder / note.name
        if Path(note.name).name != note.name or not path.is_file():
            raise IntegrityError(f"the index {manifest.name!r} is damaged: {path} is missing", fix=fix)
        if (size := path.stat().st_size) != note.size:
            problem = f"{path} has {size:,} bytes instead of {note.size:,}"
            raise IntegrityError(f"the index {manifest.name!r} is damaged: {problem}", fix=fix)
    large = sum(note.size for note in manifest.files) > _ALWAYS_HASHED
    known = _read_verified(root) if large and verify == "cached" else {}
    checked: dict[str, list[Any]] = {}
    for note in manifest.files:
        path = folder / note.name
        state = _state(path, note.sha256)
        if known.get(note.name) != state and _hash(path) != note.sha256:
            problem = f"the bytes of {path} have changed since it was written"
            raise IntegrityError(f"the index {manifest.name!r} is damaged: {problem}", fix=fix)
        if time.time_ns() - path.stat().st_mtime_ns > _SETTLED:
            checked[note.name] = state
    if large and checked != known:
        _write_verified(root, checked)


def _seal(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _hash(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read ({error.strerror})") from error


def _state(path: Path, sha256: str) -> list[Any]:
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, sha256]


def _read_verified(root: Path) -> dict[str, Any]:
    try:
        found = read_json(root / _VERIFIED)
    except IntegrityError:
        return {}  # never checked yet, or the note is unreadable: everything is hashed
    return found if isinstance(found, dict) else {}


def _write_verified(root: Path, checked: dict[str, list[Any]]) -> None:
    try:
        write_json(root / _VERIFIED, checked)
    except StorageError:
        return  # a read-only bundle is hashed at every opening
