"""A user's own replies: JSON lines or CSV with `text` or `response`, or one reply a line.

`context` and labels may stand beside a reply.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from ranker.corpora.dialogue import Dialogue, ReadReport
from ranker.corpora.files import JSON_LINES, find_split, json_objects, kind_of, lines, missing, short_name
from ranker.corpora.rows import BadRowError, labels_of, reply_dialogue
from ranker.errors import CorpusError
from ranker.types import LabelKind

CORPUS = "generic"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PLAIN = ".txt"


def find(path: Path, split: str) -> list[Path]:
    """The split's .jsonl, .csv, .tsv and .txt files (.gz too)."""
    kinds = (*JSON_LINES, *_SEPARATORS, _PLAIN)
    found = [file for file in find_split(path, split, kinds) if kind_of(file) in kinds]
    if not found:
        raise missing(path, "replies (.jsonl, .csv, .tsv or .txt)")
    return found


def read(files: list[Path], report: ReadReport) -> Iterator[Dialogue]:
    """One dialogue a row, in file order: the turns of the context, if there is one, then the reply."""
    for file in files:
        for number, row in enumerate(_rows(file, report), start=1):
            response = row.get("response", row.get("text"))
            try:
                yield reply_dialogue(
                    CORPUS,
                    f"{short_name(file)}:{number}",
                    response,
                    row.get("context"),
                    labels_of(row.get("labels")),
                )
            except BadRowError as error:
                report.reject(str(error))


def _rows(file: Path, report: ReadReport) -> Iterator[dict[str, object]]:
    kind = kind_of(file)
    if kind in JSON_LINES:
        yield from json_objects(file, report)
    elif kind in _SEPARATORS:
        yield from _table_rows(file, _SEPARATORS[kind], report)
    else:
        for line in lines(file, report):
            if line.strip():
                report.rows += 1
                yield {"text": line}


def _table_rows(file: Path, separator: str, report: ReadReport) -> Iterator[dict[str, object]]:
    """Quoted CSV rows under a header; columns called after a kind of label hold its name."""
    text = (line + "\n" for line in lines(file, report))
    rows = csv.reader(text, delimiter=separator)
    columns: list[str] = []
    while True:
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error:  # such as a field beyond the parser's limit
            report.rows += 1
            report.reject("not CSV")
            continue
        if not any(field.strip() for field in fields):
            continue
        if not columns:
            columns = [field.strip().lower() for field in fields]
            if not {"text", "response"} & set(columns):
                raise CorpusError(
                    f"{file} has no column 'text' or 'response'",
                    fix="Name the columns in the file's first line",
                )
            continue
        report.rows += 1
        if len(fields) != len(columns):
            report.reject(f"without the {len(columns)} columns")
            continue
        row: dict[str, object] = dict(zip(columns, fields, strict=True))
        labels = {kind: row[kind] for kind in get_args(LabelKind) if row.get(kind)}
        yield {**row, "labels": labels or None}
