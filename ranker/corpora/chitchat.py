"""Chit-chat: JSON lines, each a conversation `{"id": ..., "turns": [[speaker, text], ...]}`, gzip or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranker.corpora.dialogue import Dialogue, ReadReport, Turn
from ranker.corpora.files import JSON_LINES, find_split, json_objects, missing, short_name
from ranker.corpora.rows import BadRowError
from ranker.types import clean_text

CORPUS = "chitchat"


def find(path: Path, split: str) -> list[Path]:
    """The split's .jsonl files (.gz too)."""
    found = find_split(path, split, JSON_LINES)
    if not found:
        raise missing(path, "chit-chat file (.jsonl, with the turns of a conversation on each line)")
    return found


def read(files: list[Path], report: ReadReport) -> Iterator[Dialogue]:
    """Dialogues in file order; speakers are numbered by first appearance."""
    for file in files:
        for number, row in enumerate(json_objects(file, report), start=1):
            try:
                turns = _turns(row.get("turns"))
            except BadRowError as error:
                report.reject(str(error))
                continue
            yield Dialogue(CORPUS, clean_text(str(row.get("id") or f"{short_name(file)}:{number}")), turns)


def _turns(value: Any) -> tuple[Turn, ...]:
    if not isinstance(value, list):
        raise BadRowError("without turns")
    speakers: dict[str, int] = {}
    turns = []
    for said in value:
        if not isinstance(said, list) or len(said) != 2 or not isinstance(said[1], str):
            raise BadRowError("with a turn that is not [speaker, text]")
        speaker = speakers.setdefault(str(said[0]), len(speakers))
        if text := clean_text(said[1]):
            turns.append(Turn(text, speaker))
    if not turns:
        raise BadRowError("without text")
    return tuple(turns)
