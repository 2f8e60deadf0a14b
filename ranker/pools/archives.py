"""Unpacking archives that nobody vouches for: only plain files and folders, only inside, only so much."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from ranker.errors import IntegrityError

_ZIP_MAGIC = b"PK\x03\x04"
_CHUNK = 1 << 20
# zipfile raises the last two for an encrypted member and for a compression that it does not know.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """How much an archive may hold, with the archives inside it."""

    total_bytes: int = 8 << 30
    files: int = 20_000


@dataclass(slots=True)
class _Budget:
    """What is left of the limits."""

    total_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    is_folder: bool
    is_file: bool
    content: IO[bytes] | None


def is_archive(path: Path) -> bool:
    """Whether the file is a zip or a tar (compressed or not), by its bytes rather than its name."""
    with path.open("rb") as file:
        if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            return True
    return tarfile.is_tarfile(path)


def unpack(archive: Path, into: Path, limits: UnpackLimits | None = None) -> None:
    """Unpack a zip or tar into an empty folder; archives that lie in it (one level) are unpacked in place.

    Raises IntegrityError for a damaged archive, a path that leads outside, a link or device, and for more
    than the limits allow. What was unpacked until then is left to the caller to remove.
    """
    limits = limits or UnpackLimits()
    budget = _Budget(limits.total_bytes, limits.files)
    _unpack_one(archive, into, budget)
    for inner in sorted(file for file in into.rglob("*") if file.is_file() and is_archive(file)):
        _unpack_one(inner, inner.parent, budget)
        inner.unlink()


def _unpack_one(archive: Path, into: Path, budget: _Budget) -> None:
    try:
        with closing(_members(archive)) as members:
            for member in members:
                _write(member, into, archive, budget)
    except _DAMAGE as error:
        raise IntegrityError(
            f"{archive} is damaged or not a readable archive ({error})", fix="Get it again"
        ) from error


def _members(archive: Path) -> Generator[_Member, None, None]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
                with zipped.open(info) as content:
                    yield _Member(info.filename, info.is_dir(), is_file, content)
    else:
        with tarfile.open(archive) as tarred:
            for entry in tarred:
                content_or_none = tarred.extractfile(entry) if entry.isreg() else None
                yield _Member(entry.name, entry.isdir(), entry.isreg(), content_or_none)


def _write(member: _Member, into: Path, archive: Path, budget: _Budget) -> None:
    path = _safe_path(member.name, archive)
    if path.parts[:1] == ("__MACOSX",) or path.name == ".DS_Store":
        return
    target = into / path
    if member.is_folder:
        target.mkdir(parents=True, exist_ok=True)
        return
    if not member.is_file or member.content is None:
        raise _refused(archive, f"{member.name!r} is a link or a device")
    budget.files -= 1
    if budget.files < 0:
        raise _refused(archive, "it holds too many files")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = target.open("xb")
    except FileExistsError:
        raise _refused(archive, f"{member.name!r} is in it twice") from None
    with file:
        # Counted as it is written: the sizes that an archive states are not to be trusted.
        while chunk := member.content.read(_CHUNK):
            budget.total_bytes -= len(chunk)
            if budget.total_bytes < 0:
                raise _refused(archive, "it unpacks to more than is sane")
            file.write(chunk)


def _safe_path(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name:
        raise _refused(archive, f"{name!r} leads outside of it")
    return path


def _refused(archive: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"refused to unpack {archive}: {why}", fix="Get the archive from its official source"
    )
