"""EmpatheticDialogues: comma-separated rows, one per utterance, with `_comma_` for a comma inside a text.

The file is not CSV: quotes mean nothing, and a quoting reader swallows rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ranker.corpora.dialogue import LISTENER, Dialogue, ReadReport, Turn
from ranker.corpora.files import find_named, lines, missing
from ranker.types import Label, clean_text

CORPUS = "empathetic_dialogues"
_COLUMNS = 8
_TAG = re.compile(r"<[A-Z_]+>")


def find(path: Path, split: str) -> list[Path]:
    """The split's csv, in the folder itself or in its `empatheticdialogues/`."""
    found = find_named(path, [f"{split}.csv"])
    if found is None:
        raise missing(path, f"EmpatheticDialogues file {split}.csv")
    return [found]


def read(files: list[Path], report: ReadReport) -> Iterator[Dialogue]:
    """Dialogues in file order. The speaker is 0; the listener, who has the even utterances, is 1."""
    for file in files:
        yield from _read_file(file, report)


def _read_file(file: Path, report: ReadReport) -> Iterator[Dialogue]:
    conversation = emotion = situation = ""
    turns: list[Turn] = []

    def dialogue() -> Dialogue:
        labels = (Label("emotion", emotion),) if emotion else ()
        return Dialogue(CORPUS, conversation, tuple(turns), labels, situation)

    for line in lines(file, report):
        if not line.strip() or line.startswith("conv_id,"):
            continue
        report.rows += 1
        fields = line.split(",")
        if len(fields) not in (_COLUMNS, _COLUMNS + 1):
            report.reject("without the 8 columns")
            continue
        if not fields[1].strip().isdecimal():
            report.reject("without an utterance number")
            continue
        text = _text(fields[5])
        if not text:
            report.reject("without text")
            continue
        if fields[0] != conversation:
            if turns:
                yield dialogue()
            conversation, emotion, situation = fields[0], clean_text(fields[2]).lower(), _text(fields[3])
            turns = []
        # Worker ids stand in `speaker_idx` of the official files, so only the number tells who speaks.
        speaker = LISTENER if int(fields[1]) % 2 == 0 else 0
        turns.append(Turn(text, speaker, candidates=_inline_candidates(fields)))
    if turns:
        yield dialogue()


def _inline_candidates(fields: list[str]) -> tuple[str, ...]:
    """The replies joined by `|` in the column after the official ones, or in `tags` beside real tags."""
    joined = fields[_COLUMNS] if len(fields) > _COLUMNS else fields[_COLUMNS - 1]
    if "|" not in joined:
        return ()
    texts = (
        _text(part.replace("_pipe_", "|")) for part in joined.split("|") if not _TAG.fullmatch(part.strip())
    )
    return tuple(text for text in texts if text)


def _text(field: str) -> str:
    return clean_text(field.replace("_comma_", ","))
