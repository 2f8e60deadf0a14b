"""Reddit pairs: a context and its reply on each row, as tab-separated values or JSON lines, gzip or not.

A `subreddit` becomes a topic label; other columns are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ranker.corpora.dialogue import Dialogue, ReadReport
from ranker.corpora.files import JSON_LINES, find_split, json_objects, kind_of, lines, missing, short_name
from ranker.corpora.rows import BadRowError, reply_dialogue
from ranker.types import Label, clean_text

CORPUS = "reddit"
_TABLES = (".tsv", ".txt")


def find(path: Path, split: str) -> list[Path]:
    """The split's .tsv and .jsonl files (.gz too)."""
    found = find_split(path, split, _TABLES + JSON_LINES)
    if not found:
        raise missing(path, "Reddit pairs (.tsv or .jsonl, with context and response)")
    return found


def read(files: list[Path], report: ReadReport) -> Iterator[Dialogue]:
    """One dialogue a row, in file order: the turns of the context, then the response."""
    for file in files:
        rows = _json_rows(file, report) if kind_of(file) in JSON_LINES else _table_rows(file, report)
        for number, (context, response, subreddit) in enumerate(rows, start=1):
            try:
                yield _dialogue(f"{short_name(file)}:{number}", context, response, subreddit)
            except BadRowError as error:
                report.reject(str(error))


def _dialogue(id: str, context: object, response: object, subreddit: object) -> Dialogue:
    topic = clean_text(subreddit).lower() if isinstance(subreddit, str) else ""
    dialogue = reply_dialogue(CORPUS, id, response, context, (Label("topic", topic),) if topic else ())
    if dialogue.first_response == 0:
        raise BadRowError("without a context")
    return dialogue


def _json_rows(file: Path, report: ReadReport) -> Iterator[tuple[object, object, object]]:
    for row in json_objects(file, report):
        yield row.get("context"), row.get("response"), row.get("subreddit")


def _table_rows(file: Path, report: ReadReport) -> Iterator[tuple[object, object, object]]:
    """Rows under a header that names the columns; without one, just context and response."""
    columns: list[str] = []
    for line in lines(file, report):
        if not line.strip():
            continue
        fields = line.split("\t")
        if not columns:
            header = [field.strip().lower() for field in fields]
            if {"context", "response"} <= set(header):
                columns = header
                continue
            columns = ["context", "response"]
        report.rows += 1
        if len(fields) != len(columns):
            report.reject(f"without the {len(columns)} columns")
            continue
        row = dict(zip(columns, fields, strict=True))
        yield row["context"], row["response"], row.get("subreddit")
