"""How commands speak: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ranker.types import Progress as Advance

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def wants_json(asked: bool | None) -> bool:
    """What --json/--no-json says; without it, a table on a terminal and JSON in a pipe."""
    return not out.is_terminal if asked is None else asked


def print_json(value: Any) -> None:
    """One JSON value on one line (JSON lines), whatever the console's width or colours."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line for the person, on stderr, so that a pipe stays clean."""
    err.print(text, style="dim", markup=False, soft_wrap=True)


def table(*columns: str, title: str | None = None) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        numeric = column in ("score", "candidates", "size", "rank", "value")
        made.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    return made


class Steps:
    """Progress lines, one per step of a job; a step is opened by calling with its name and size."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar

    def __call__(self, name: str, total: int) -> Advance:
        task = self._bar.add_task(name, total=total or None)
        return lambda done, of: self._bar.update(task, completed=done, total=of)


@contextmanager
def steps() -> Iterator[Steps]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=not err.is_terminal) as bar:
        yield Steps(bar)
