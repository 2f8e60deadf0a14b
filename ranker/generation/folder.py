"""A generator on disk: versions beside a pointer (see ranker.storage), each a folder of files and a manifest.

    CURRENT          the name of the version that counts
    v-.../
        manifest.json    kind, origin, figures, and the sha256 and size of every other file; written last
        ...              the generator's own files

Opening reads the manifest only, so that it costs nothing where the generator is never needed. A file's size
and hash are checked before anything parses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.storage import (
    current,
    publish,
    read_checked,
    read_json,
    sha256_of,
    staged_folder,
    storage_errors,
    write_json,
)

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as it was written: `name` is its path inside the folder, with slashes; `size` in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, such as the perplexity on a split, with its name."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of `manifest.json`. What a generator needs to run is in its own files, not here."""

    kind: str
    """Which module reads the folder: "seq2seq", "chat", "chat-base" ..."""
    origin: str
    """What the weights were made from, for people."""
    licence: str
    figures: tuple[Figure, ...] = ()
    files: tuple[FileStamp, ...] = ()
    package: str = ""
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Of the kind and all files: two folders with the same one answer alike."""
        stamps = "".join(sorted(f"{stamp.name}\0{stamp.sha256}\n" for stamp in self.files))
        return hashlib.sha256(f"{self.kind}\n{stamps}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class GeneratorFolder:
    """A version of a generator and its manifest. `root` is the folder that the user knows."""

    root: Path
    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, root: Path, kind: str) -> GeneratorFolder:
        """The current version. Raises NotFoundError where there is none, IntegrityError where it is damaged
        or of another kind."""
        path = current(root)
        if path is None:
            raise NotFoundError(f"no generator in {root}", fix="To make one: ranker train-generator --help")
        manifest = _read_manifest(path / MANIFEST)
        if manifest.kind != kind:
            raise IntegrityError(f"{root} holds a generator of the kind {manifest.kind!r}, not {kind!r}")
        return cls(root, path, manifest)

    def read(self, name: str) -> bytes:
        """The bytes of a file: what was hashed is what the caller then parses. Raises IntegrityError where it
        is missing or not as written."""
        stamp = self._stamp(name)
        return read_checked(self.path / name, size=stamp.size, sha256=stamp.sha256, fix=_REPAIR)

    def checked(self, name: str) -> Path:
        """The path of a file that is as written, where it is too large to read. Raises IntegrityError."""
        stamp = self._stamp(name)
        path = self.path / name
        try:
            size, sha256 = path.stat().st_size, ""
            if size == stamp.size:
                sha256 = sha256_of(path)
        except OSError as error:
            raise IntegrityError(f"{path} cannot be read ({error.strerror})", fix=_REPAIR) from error
        if size != stamp.size:
            raise IntegrityError(f"{path} has {size:,} bytes, not {stamp.size:,}", fix=_REPAIR)
        if sha256 != stamp.sha256:
            raise IntegrityError(f"{path} does not match its sha256", fix=_REPAIR)
        return path

    def _stamp(self, name: str) -> FileStamp:
        for stamp in self.manifest.files:
            if stamp.name == name:
                return stamp
        raise IntegrityError(f"the manifest in {self.path} has no file {name!r}", fix=_REPAIR)


def write_generator(root: Path, manifest: Manifest, fill: Callable[[Path], object]) -> GeneratorFolder:
    """Publish what `fill` writes into an empty folder as the current version of `root`, atomically.

    The stamps and the package version of `manifest` are filled in. Raises StorageError.
    """
    with storage_errors(root), staged_folder(root) as staged:
        fill(staged)
        files = sorted(file for file in staged.rglob("*") if file.is_file())
        written = replace(
            manifest,
            files=tuple(
                FileStamp(file.relative_to(staged).as_posix(), sha256_of(file), file.stat().st_size)
                for file in files
            ),
            package=metadata.version("response-ranker"),
        )
        write_json(staged / MANIFEST, asdict(written))
        return GeneratorFolder(root, publish(staged, root), written)


def kind_of(root: Path) -> str:
    """Of the generator in a published folder. Raises IntegrityError where it is damaged."""
    path = current(root)
    if path is None:
        raise NotFoundError(f"no generator in {root}")
    return _read_manifest(path / MANIFEST).kind


def _read_manifest(path: Path) -> Manifest:
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise IntegrityError(f"{path} is not a generator's manifest of format {FORMAT}", fix=_REPAIR)
    try:
        manifest = from_table(Manifest, value, source=str(path))
    except ConfigError as error:
        raise IntegrityError(error.message, fix=_REPAIR) from error
    for stamp in manifest.files:
        name = Path(stamp.name)
        if name.is_absolute() or ".." in name.parts:
            raise IntegrityError(f"{path} names a file outside its folder: {stamp.name!r}")
    return manifest


_REPAIR = "Train, fetch or copy the generator again"
