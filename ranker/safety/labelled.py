"""Lines with labels, one per row: `label<TAB>text`, in UTF-8.

The package brings two sets for each task. The `tune_` lines are what the classifiers are fitted to and the
patterns were written with; the `check_` lines were written apart, and only the evaluation reads those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ranker.errors import CorpusError, NotFoundError
from ranker.safety.messages import CATEGORIES
from ranker.types import clean_text

LINES = Path(__file__).with_name("lines")
NONE = "none"
UNSAFE, SAFE = "unsafe", "safe"

Task = Literal["crisis", "offence"]
LABELS: dict[Task, tuple[str, ...]] = {"crisis": (*CATEGORIES, NONE), "offence": (UNSAFE, SAFE)}
"""The labels of each task's lines; the last one is that of the harmless."""


class Line(NamedTuple):
    label: str
    text: str


def tuning_lines(task: Task, folder: Path = LINES) -> list[Line]:
    """The lines that a classifier is fitted to."""
    return read_lines(folder / f"tune_{task}.tsv", LABELS[task])


def check_lines(task: Task, folder: Path = LINES) -> list[Line]:
    """The lines that figures are measured on: never for fitting."""
    return read_lines(folder / f"check_{task}.tsv", LABELS[task])


def read_lines(path: Path, labels: Collection[str]) -> list[Line]:
    """A file's lines. Raises NotFoundError without the file, CorpusError for a row that is not one."""
    try:
        rows = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise NotFoundError(f"there are no lines at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} cannot be read as text ({error})") from error
    found = []
    for number, row in enumerate(rows, start=1):
        label, _, text = row.partition("\t")
        text = clean_text(text)
        if label not in labels or not text:
            raise CorpusError(f"{path}, line {number}: not a label ({', '.join(labels)}), a tab and a text")
        found.append(Line(label, text))
    if not found:
        raise CorpusError(f"{path} is empty")
    return found


def texts_of(lines: Sequence[Line]) -> list[str]:
    return [line.text for line in lines]
