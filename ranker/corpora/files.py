"""Finding a corpus's files and reading their lines, whatever state they are in."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ranker.corpora.dialogue import ReadReport
from ranker.errors import CorpusError

JSON_LINES = (".jsonl", ".json", ".ndjson")
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DEPTH = 3


def lines(path: Path, report: ReadReport) -> Iterator[str]:
    """The lines of a text file, plain or gzip, without their ends; broken UTF-8 is replaced.

    Only a line feed ends a line. Damaged gzip data ends the file early and is counted as a bad row.
    Raises CorpusError where the file cannot be opened.
    """
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path) if packed else path.open("rb") as file:
            for number, line in enumerate(file):
                text = line.decode("utf-8-sig" if number == 0 else "utf-8", "replace")
                yield text.rstrip("\r\n")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        report.rows += 1
        report.reject("in damaged gzip data")
    except OSError as error:
        raise CorpusError(
            f"cannot read {path}: {error.strerror or error}", fix="Check the file and its permissions"
        ) from error


def json_objects(path: Path, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file. Blank lines are passed over, other values counted as bad."""
    for line in lines(path, report):
        if not line.strip():
            continue
        report.rows += 1
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            report.reject("not JSON")
            continue
        if isinstance(value, dict):
            yield value
        else:
            report.reject("not a JSON object")


def find_named(path: Path, names: Iterable[str]) -> Path | None:
    """`path` itself where it is a file; else the first of `names` in the folder, the shallowest first.

    Names may contain one folder (`train/x.txt`), and are tried in the order given.
    """
    if path.is_file():
        return path
    for name in names:
        for depth in range(_MAX_DEPTH):
            found = sorted(file for file in path.glob("*/" * depth + name) if file.is_file())
            if found:
                return found[0]
    return None


def find_split(path: Path, split: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a split: `path` itself where it is a file; in a folder the files called after the split
    (`valid.jsonl`), else for `train` all that are not called after another split. Sorted by name.
    """
    if path.is_file():
        return [path]
    found = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith(".") and kind_of(file) in suffixes
    )
    named = [file for file in found if short_name(file) == split]
    if named or split != "train":
        return named
    return [file for file in found if short_name(file) not in ("valid", "validation", "test")]


def kind_of(path: Path) -> str:
    """The suffix that tells the format, in lower case: `.tsv` of `pairs.tsv.gz`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def missing(path: Path, what: str) -> CorpusError:
    """The error for a folder or file that is not what the reader needs."""
    if not path.exists():
        return CorpusError(f"there is no {path}", fix=f"Give a folder or file with {what}")
    return CorpusError(f"{path} holds no {what}", fix="Check the path, or fetch or import the corpus again")


def short_name(path: Path) -> str:
    """The file's name up to its first dot, in lower case."""
    return path.name.split(".")[0].lower()
