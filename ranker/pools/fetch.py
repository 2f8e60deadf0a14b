"""Downloading a pool's corpus: resumed where it broke off, retried where it failed, checked before use."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ranker.errors import DownloadError
from ranker.home import Home
from ranker.pools.cards import PoolCard
from ranker.pools.raw import Validate, install
from ranker.storage import exclusive, sha256_of, storage_errors
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


class _Interrupted(Exception):
    """A transfer that may succeed if tried again; its message says what happened."""


def fetch_raw(
    card: PoolCard,
    home: Home,
    progress: Progress | None = None,
    *,
    validate: Validate,
    settings: FetchSettings | None = None,
) -> Path:
    """Download the card's archive, check its size and sha256, unpack it, and make it the pool's full corpus.

    `progress` counts bytes. What arrived of an interrupted download is kept and resumed the next time; a file
    that does not match its checksum is deleted. Raises DownloadError, and what `import_raw` raises.
    Returns the folder that holds the corpus now.
    """
    if not card.url:
        raise DownloadError(
            f"pool {card.name!r} has no download", fix=card.how_to_get or f"Run: {card.next_step}"
        )
    if urlsplit(card.url).scheme not in ("http", "https"):
        raise DownloadError(f"the url of pool {card.name!r} is not http(s): {card.url}")
    folder = home.pools / card.name
    with exclusive(folder, "fetching"):
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        name = Path(urlsplit(card.url).path).name or "download"
        part = folder / f"{name}.part"
        _download(card, part, progress, settings or FetchSettings())
        _verify(card, part)
        final = install(card, part, home, validate=validate, name=name)
        part.unlink()
        return final


def _download(card: PoolCard, part: Path, progress: Progress | None, settings: FetchSettings) -> None:
    """Try until `part` has the card's size or nothing new has come for too many tries."""
    failures, most = 0, _size(part)
    while True:
        try:
            _transfer(card, part, progress, settings.timeout_seconds)
            return
        except _Interrupted as error:
            have = _size(part)
            failures = 0 if have > most else failures + 1
            most = max(have, most)
            if failures >= settings.attempts:
                raise DownloadError(
                    f"cannot download {card.url}: {error} ({have:,} of {card.size_bytes:,} bytes here)",
                    fix=f"Try again later with: ranker fetch {card.name}, or take the file from elsewhere: "
                    f"ranker import {card.name} PATH",
                ) from error
            time.sleep(settings.backoff_seconds * 2 ** max(failures - 1, 0))


def _transfer(card: PoolCard, part: Path, progress: Progress | None, timeout: float) -> None:
    """One request for what is missing. Raises _Interrupted where `part` is not whole after it."""
    done = _size(part)
    if done > card.size_bytes:
        part.unlink()
        done = 0
    if done == card.size_bytes:
        return
    headers = {"User-Agent": "response-ranker", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(card.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if not _resumes(response, done):
                done = 0
            with storage_errors(part):
                file = part.open("ab" if done else "wb", buffering=0)
            with file:
                for chunk in _chunks(response):
                    done += len(chunk)
                    if done > card.size_bytes:
                        break
                    with storage_errors(part):
                        file.write(chunk)
                    if progress is not None:
                        progress(done, card.size_bytes)
    except urllib.error.HTTPError as error:
        with error:
            _judge(error, card, part)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise _Interrupted(str(getattr(error, "reason", None) or error or type(error).__name__)) from error
    if done > card.size_bytes:
        part.unlink()
        raise DownloadError(
            f"{card.url} is longer than the {card.size_bytes:,} bytes on the pool's card",
            fix=f"The file may have changed at its source; compare it, then: ranker import {card.name} PATH",
        )
    if done < card.size_bytes:
        raise _Interrupted("the transfer ended early")


def _judge(error: urllib.error.HTTPError, card: PoolCard, part: Path) -> None:
    """Raise _Interrupted for an answer that may change, DownloadError for one that will not."""
    if error.code == _RANGE_NOT_SATISFIABLE:
        part.unlink(missing_ok=True)
        raise _Interrupted("the server cannot resume what is here") from error
    if error.code in _TRY_LATER:
        raise _Interrupted(f"the server answers {error.code} {error.reason}") from error
    raise DownloadError(
        f"cannot download {card.url}: the server answers {error.code} {error.reason}",
        fix=f"If you have the file, run: ranker import {card.name} PATH",
    ) from error


def _resumes(response: http.client.HTTPResponse, done: int) -> bool:
    """Whether the answer goes on from `done`, rather than starting again."""
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
    return response.status == http.HTTPStatus.PARTIAL_CONTENT and start == str(done)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read(_CHUNK):
        yield chunk


def _verify(card: PoolCard, part: Path) -> None:
    found = sha256_of(part)
    if found != card.sha256:
        part.unlink()
        raise DownloadError(
            f"{card.url} does not match its checksum (sha256 {found[:12]}…, not {card.sha256[:12]}…)",
            fix=f"It was deleted; run again: ranker fetch {card.name}",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
