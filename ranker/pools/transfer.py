"""Downloading one file: resumed where it broke off, retried where it failed, checked before use."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ranker.errors import DownloadError
from ranker.storage import sha256_of, storage_errors
from ranker.types import Progress

_CHUNK = 1 << 16
_TRY_LATER = {408, 425, 429, 500, 502, 503, 504}
_RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """`attempts` counts tries in a row that brought nothing new; waits double from `backoff_seconds`."""

    attempts: int = 5
    backoff_seconds: float = 1.0
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as it must arrive, and the commands that get it again, or from a copy that the user has."""

    url: str
    sha256: str
    size_bytes: int
    fetch_command: str
    import_command: str


class _Interrupted(Exception):
    """A transfer that may succeed if tried again; its message says what happened."""


def download(
    file: RemoteFile, part: Path, progress: Progress | None = None, settings: FetchSettings | None = None
) -> None:
    """Complete `part`, which may hold the beginning of the file, and check its size and sha256.

    `progress` counts bytes. Tries until all is here or nothing new has come for too many tries: what arrived
    is kept then. A file that does not match its checksum is deleted. Raises DownloadError, StorageError.
    """
    settings = settings or FetchSettings()
    failures, most = 0, _size(part)
    while True:
        try:
            _transfer(file, part, progress, settings.timeout_seconds)
            break
        except _Interrupted as error:
            have = _size(part)
            failures = 0 if have > most else failures + 1
            most = max(have, most)
            if failures >= settings.attempts:
                raise DownloadError(
                    f"cannot download {file.url}: {error} ({have:,} of {file.size_bytes:,} bytes here)",
                    fix=f"Try again later with: {file.fetch_command}, or take the file from elsewhere: "
                    f"{file.import_command}",
                ) from error
            time.sleep(settings.backoff_seconds * 2 ** max(failures - 1, 0))
    _verify(file, part)


def _transfer(file: RemoteFile, part: Path, progress: Progress | None, timeout: float) -> None:
    """One request for what is missing. Raises _Interrupted where `part` is not whole after it."""
    done = _size(part)
    if done > file.size_bytes:
        part.unlink()
        done = 0
    if done == file.size_bytes:
        return
    headers = {"User-Agent": "response-ranker", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(file.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if not _resumes(response, done):
                done = 0
            with storage_errors(part):
                writing = part.open("ab" if done else "wb", buffering=0)
            with writing:
                for chunk in _chunks(response):
                    done += len(chunk)
                    if done > file.size_bytes:
                        break
                    with storage_errors(part):
                        writing.write(chunk)
                    if progress is not None:
                        progress(done, file.size_bytes)
    except urllib.error.HTTPError as error:
        with error:
            _judge(error, file, part)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise _Interrupted(str(getattr(error, "reason", None) or error or type(error).__name__)) from error
    if done > file.size_bytes:
        part.unlink()
        raise DownloadError(
            f"{file.url} is longer than the {file.size_bytes:,} bytes on its card",
            fix=f"The file may have changed at its source; compare it, then: {file.import_command}",
        )
    if done < file.size_bytes:
        raise _Interrupted("the transfer ended early")


def _judge(error: urllib.error.HTTPError, file: RemoteFile, part: Path) -> None:
    """Raise _Interrupted for an answer that may change, DownloadError for one that will not."""
    if error.code == _RANGE_NOT_SATISFIABLE:
        part.unlink(missing_ok=True)
        raise _Interrupted("the server cannot resume what is here") from error
    if error.code in _TRY_LATER:
        raise _Interrupted(f"the server answers {error.code} {error.reason}") from error
    raise DownloadError(
        f"cannot download {file.url}: the server answers {error.code} {error.reason}",
        fix=f"If you have the file, run: {file.import_command}",
    ) from error


def _resumes(response: http.client.HTTPResponse, done: int) -> bool:
    """Whether the answer goes on from `done`, rather than starting again."""
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
    return response.status == http.HTTPStatus.PARTIAL_CONTENT and start == str(done)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read(_CHUNK):
        yield chunk


def _verify(file: RemoteFile, part: Path) -> None:
    found = sha256_of(part)
    if found != file.sha256:
        part.unlink()
        raise DownloadError(
            f"{file.url} does not match its checksum (sha256 {found[:12]}…, not {file.sha256[:12]}…)",
            fix=f"It was deleted; run again: {file.fetch_command}",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
