"""20 Newsgroups (by date): the posts of a split with their topics, from the archive or unpacked."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ranker.errors import CorpusError
from ranker.labels.taxonomy import TOPIC_OF_NEWSGROUP

_SPLITS = {"train": "20news-bydate-train", "test": "20news-bydate-test"}
_MOST_BYTES = 1 << 20
_QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^[>|:}])")


def read_newsgroups(path: Path, split: str) -> list[tuple[str, str]]:
    """(text, topic) of each post of `train` or `test`, in a fixed order, without headers, quotes and
    signatures; posts with nothing left are passed over.

    `path` is 20news-bydate.tar.gz, or a folder with it or with its unpacked folders. Raises CorpusError.
    """
    if split not in _SPLITS:
        raise CorpusError(f"20 Newsgroups has no split {split!r}", fix="Use train or test")
    found = []
    for name, post in sorted(_posts(path, _SPLITS[split])):
        text = strip_post(post.decode("latin-1"))
        if text:
            found.append((text, TOPIC_OF_NEWSGROUP[PurePosixPath(name).parent.name]))
    if not found:
        raise CorpusError(f"{path} holds no post of 20 Newsgroups", fix="Give 20news-bydate.tar.gz")
    return found


def strip_post(post: str) -> str:
    """The words that the writer of a post adds: no headers, quoted lines or signature, on one line."""
    _, _, body = post.replace("\r\n", "\n").partition("\n\n")
    lines = [line for line in body.split("\n") if not _QUOTE.search(line)]
    return " ".join(" ".join(_without_signature(lines)).split())


def _without_signature(lines: list[str]) -> list[str]:
    """All but the last block, where a blank or dashed line sets one apart."""
    while lines and not lines[-1].strip(" -"):
        lines = lines[:-1]
    for place in range(len(lines) - 1, 0, -1):
        if not lines[place].strip(" -"):
            return lines[:place]
    return lines


def _posts(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Names (`group/number`) and bytes of a split's posts."""
    if path.is_dir():
        groups = [found for found in path.rglob(folder) if found.is_dir()]
        if groups:
            for file in groups[0].glob("*/*"):
                if file.parent.name in TOPIC_OF_NEWSGROUP and file.is_file():
                    yield f"{file.parent.name}/{file.name}", file.read_bytes()
            return
        archives = sorted(path.rglob("20news-bydate*.tar.gz"))
        if not archives:
            raise CorpusError(f"{path} holds no 20 Newsgroups", fix="Give 20news-bydate.tar.gz")
        path = archives[0]
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                wanted = len(place.parts) >= 3 and place.parts[-3] == folder
                if wanted and place.parent.name in TOPIC_OF_NEWSGROUP and member.size <= _MOST_BYTES:
                    opened = archive.extractfile(member)
                    if opened is not None:
                        yield f"{place.parent.name}/{place.name}", opened.read()
    except FileNotFoundError:
        raise CorpusError(f"there is no {path}", fix="Give 20news-bydate.tar.gz") from None
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise CorpusError(f"{path} is not a readable tar.gz archive ({error})") from error
