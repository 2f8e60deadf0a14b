"""Writing that cannot be half done, and reading that is checked first.

A file appears by rename once it is whole and on disk. A folder that others read while it is replaced is kept
as versions beside a pointer file: the pointer is what flips, so a crash at any moment leaves the old or the
new version, never neither.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ranker.errors import IntegrityError, StorageError

MANIFEST = "manifest.json"
"""Of a small model: the file that names the one with its numbers."""

_POINTER = "CURRENT"
_STAGING = ".staging-"
_CHUNK = 1 << 24
_VERSION = re.compile(r"v-[0-9a-f]+")
_FULL = {errno.ENOSPC, errno.EFBIG} | ({errno.EDQUOT} if hasattr(errno, "EDQUOT") else set())


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's complaints about `path` into one-line StorageErrors."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"the disk is full, writing {path}; what was there before is unchanged",
                fix="Free some space and run the command again",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StorageError(
                f"no permission to write {path}",
                fix="Choose a writable home: --home FOLDER or RANKER_HOME",
            ) from error
        raise StorageError(f"cannot use {path}: {error.strerror or error}") from error


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes. Raises OSError as the disk does."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
    return digest.hexdigest()


def read_checked(path: Path, *, size: int, sha256: str, fix: str = "") -> bytes:
    """The bytes of a file as it was written: what was hashed is what the caller then parses.

    Raises IntegrityError, with `fix` as the next step, where it is missing or another size or digest.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read ({error.strerror})", fix=fix) from error
    if len(data) != size:
        raise IntegrityError(f"{path} has {len(data):,} bytes, not {size:,}", fix=fix)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise IntegrityError(f"{path} does not match its sha256", fix=fix)
    return data


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: whole, flushed, then renamed into place."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            _flush_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def read_json(path: Path) -> Any:
    """A JSON file's value. Raises IntegrityError where it is missing or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing") from None
    except (ValueError, RecursionError, OSError) as error:
        raise IntegrityError(f"{path} is not readable JSON ({error})") from error


def write_model_files(folder: Path, manifest: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a small model over the one that was there: its numbers, and a manifest that names their file.

    `manifest` gets the keys file, sha256, size and package. It is written last, so that it always names a
    whole file.
    """
    data = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    file = f"{digest[:12]}.safetensors"
    stamp = {
        "file": file,
        "sha256": digest,
        "size": len(data),
        "package": metadata.version("response-ranker"),
    }
    write_bytes(folder / file, data)
    write_json(folder / MANIFEST, {**manifest, **stamp})
    with storage_errors(folder):
        for old in folder.glob("*.safetensors"):
            if old.name != file:
                old.unlink(missing_ok=True)


def read_safetensors(path: Path, *, size: int, sha256: str, fix: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, once its bytes are as written. See `read_checked`."""
    data = read_checked(path, size=size, sha256=sha256, fix=fix)
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} is not a readable safetensors file ({error})", fix=fix) from error


def write_blob(path: Path, data: NDArray[np.uint8]) -> None:
    """Write bytes into a staged folder. Raises OSError, with its number, as the disk does."""
    with path.open("wb") as file:
        _write_chunks(file, data)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy file into a staged folder. Raises OSError, with its number, as the disk does
    (numpy's own writer does not say that the disk is full)."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        _write_chunks(file, array.reshape(-1).view(np.uint8))


def map_array(path: Path, dtype: DTypeLike, *, ndim: int) -> NDArray[Any]:
    """A .npy file as a read-only array, read from disk where it is touched.

    Raises IntegrityError where it is missing or holds something else.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing") from None
    except (ValueError, OSError, EOFError) as error:
        raise IntegrityError(f"{path} is not a readable array ({error})") from error
    if array.dtype != dtype or array.ndim != ndim:
        raise IntegrityError(f"{path} holds {array.ndim}-D {array.dtype}, not {ndim}-D {np.dtype(dtype)}")
    return np.asarray(array)  # a plain view: numpy's memmap class slows every indexing down


@contextmanager
def staged_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder inside `parent` to build in; removed at the end unless it was published."""
    with storage_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _sweep_staging(parent)
        folder = parent / f"{_STAGING}{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish(staged: Path, root: Path) -> Path:
    """Make a staged folder the current version of `root`, atomically, then drop older versions.

    Returns the folder's final path.
    """
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        for file in staged.rglob("*"):
            if file.is_file():
                _flush(file)
        _flush_folder(staged)
        final = root / f"v-{secrets.token_hex(6)}"
        staged.replace(final)
        _flush_folder(root)
        write_bytes(root / _POINTER, f"{final.name}\n".encode())
        for old in root.glob("v-*"):
            if old != final:
                shutil.rmtree(old, ignore_errors=True)
    return final


def current(root: Path) -> Path | None:
    """The current version of a published folder, or None where nothing was ever published.

    Raises IntegrityError where the pointer leads nowhere.
    """
    name = _pointer(root)
    while name is not None:
        folder = root / name
        if _VERSION.fullmatch(name) and folder.is_dir():
            return folder
        # A writer may have replaced the version between the two looks.
        before, name = name, _pointer(root)
        if name == before:
            raise IntegrityError(f"{root / _POINTER} names no version of {root.name}")
    return None


def is_published(root: Path) -> bool:
    """Whether something was ever published at `root`, damaged or not."""
    return (root / _POINTER).exists()


def _pointer(root: Path) -> str | None:
    try:
        return (root / _POINTER).read_text("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IntegrityError(f"{root / _POINTER} cannot be read ({error.strerror})") from error


@contextmanager
def exclusive(root: Path, doing: str) -> Iterator[None]:
    """Hold the writer's lock of `root`. Raises StorageError at once where another process has it."""
    with storage_errors(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root.parent / f".{root.name}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise StorageError(
                f"another process is {doing} {root.name!r} right now", fix="Wait for it, then try again"
            ) from None
    try:
        yield
    finally:
        lock.release()


def _write_chunks(file: BinaryIO, data: NDArray[np.uint8]) -> None:
    for start in range(0, data.size, _CHUNK):
        file.write(data[start : start + _CHUNK].data)


def _flush(file: Path) -> None:
    with file.open("r+b") as handle:
        os.fsync(handle.fileno())


def _flush_folder(folder: Path) -> None:
    """Put a folder's names on disk, where the system lets one: a rename is not durable before."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep_staging(parent: Path) -> None:
    """Remove what a killed process left behind."""
    for folder in parent.glob(f"{_STAGING}*"):
        pid = folder.name.removeprefix(_STAGING).split("-")[0]
        if pid.isascii() and pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere there is no harmless signal to ask with
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
