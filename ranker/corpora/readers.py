"""The one way in: a reader by its name, over a folder or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ranker.corpora import chitchat, dailydialog, empathetic_dialogues, generic, reddit
from ranker.corpora.dialogue import Dialogue, ReadReport
from ranker.corpora.files import missing
from ranker.errors import CorpusError, NotFoundError

SPLITS = ("train", "valid", "test")


class _Reader(NamedTuple):
    """`find` names the files of a split or raises CorpusError; `read` streams their dialogues."""

    find: Callable[[Path, str], list[Path]]
    read: Callable[[list[Path], ReadReport], Iterator[Dialogue]]


_READERS = {
    "empathetic_dialogues": _Reader(empathetic_dialogues.find, empathetic_dialogues.read),
    "dailydialog": _Reader(dailydialog.find, dailydialog.read),
    "reddit": _Reader(reddit.find, reddit.read),
    "chitchat": _Reader(chitchat.find, chitchat.read),
    "generic": _Reader(generic.find, generic.read),
}
READERS = tuple(_READERS)


def read_dialogues(reader: str, path: Path, split: str, report: ReadReport) -> Iterator[Dialogue]:
    """Stream the dialogues of a split (train, valid or test) from a folder or file; bad rows go to `report`.

    Raises NotFoundError for an unknown reader or split and CorpusError for a missing file, both before the
    first dialogue is asked for; CorpusError at the end where no row was usable.
    """
    if reader not in _READERS:
        raise NotFoundError.of("reader", reader, READERS)
    if split not in SPLITS:
        raise NotFoundError.of("split", split, SPLITS)
    if not path.exists():
        raise missing(path, f"the raw files of {reader}")
    chosen = _READERS[reader]
    return _at_least_one(chosen.read(chosen.find(path, split), report), path, report)


def check_raw(reader: str, path: Path, split: str) -> None:
    """Raise CorpusError unless `path` holds at least one usable dialogue of the split."""
    next(read_dialogues(reader, path, split, ReadReport()))


def _at_least_one(dialogues: Iterator[Dialogue], path: Path, report: ReadReport) -> Iterator[Dialogue]:
    usable = False
    for dialogue in dialogues:
        usable = True
        yield dialogue
    if not usable:
        raise CorpusError(
            f"{path} has no usable row: {report.summary()}",
            fix="Check that it is a file in the reader's format",
        )
