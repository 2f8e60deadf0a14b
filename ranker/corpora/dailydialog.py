"""DailyDialog: a dialogue a line, `__eou__` after each turn; acts, emotions and topics in files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path

from ranker.corpora.dialogue import Dialogue, ReadReport, Turn
from ranker.corpora.files import find_named, lines, missing
from ranker.types import Label, LabelKind, clean_text

CORPUS = "dailydialog"
_TURN_END = "__eou__"
_ACTS = {"1": "inform", "2": "question", "3": "directive", "4": "commissive"}
_EMOTIONS = {
    "0": "",  # no emotion: no label
    "1": "anger",
    "2": "disgust",
    "3": "fear",
    "4": "happiness",
    "5": "sadness",
    "6": "surprise",
}
_TOPICS = {
    "1": "ordinary life",
    "2": "school life",
    "3": "culture & education",
    "4": "attitude & emotion",
    "5": "relationship",
    "6": "tourism",
    "7": "health",
    "8": "work",
    "9": "politics",
    "10": "finance",
}

_PLAIN_MARKS = str.maketrans("。，？！’‘“”", ".,?!''\"\"")
_SPLIT_APOSTROPHE = re.compile(r"(?<=\w) ?' ?(?=(?:s|t|m|d|re|ve|ll)\b)", re.IGNORECASE)
_SPACED_MARK = re.compile(r"\s+([.,!?;:%]+)(?=\s|$)")
_GLUED_SENTENCE = re.compile(r"(?<=[a-z]{2})([.!?,])(?=[A-Z][a-z' ])")
_SPACED_PRICE = re.compile(r"([$£€]) (?=\d)")


def find(path: Path, split: str) -> list[Path]:
    """The split's text file: `train/dialogues_train.txt` of the official archive, or flat in the folder."""
    name = {"valid": "validation"}.get(split, split)
    text = f"dialogues_{name}.txt"
    found = find_named(path, [f"{name}/{text}", text])
    if found is None:
        raise missing(path, f"DailyDialog file {text}")
    return [found]


def read(files: list[Path], report: ReadReport) -> Iterator[Dialogue]:
    """Dialogues in file order; two speakers, 0 and 1, take turns."""
    for file in files:
        yield from _read_file(file, report)


def _read_file(file: Path, report: ReadReport) -> Iterator[Dialogue]:
    acts = _beside(file, "act", report)
    emotions = _beside(file, "emotion", report)
    topics = _beside(file, "topic", report)
    name = file.stem.removeprefix("dialogues_")
    for number, line in enumerate(lines(file, report), start=1):
        codes = next(acts), next(emotions), next(topics)
        if not line.strip():
            continue
        report.rows += 1
        texts = line.split(_TURN_END)
        if not texts[-1].strip():  # every turn is ended, the last one too
            texts.pop()
        turns = _turns(texts, _per_turn(codes[0], texts, report), _per_turn(codes[1], texts, report))
        if turns:
            yield Dialogue(
                CORPUS, f"{name}:{number}", turns, _label("topic", _TOPICS, (codes[2] or "").strip())
            )
        else:
            report.reject("without text")


def _turns(texts: Sequence[str], acts: Sequence[str], emotions: Sequence[str]) -> tuple[Turn, ...]:
    turns = []
    for place, (raw, act, emotion) in enumerate(zip(texts, acts, emotions, strict=True)):
        if text := detokenised(raw):
            labels = _label("emotion", _EMOTIONS, emotion) + _label("intent", _ACTS, act)
            turns.append(Turn(text, place % 2, labels))
    return tuple(turns)


def detokenised(text: str) -> str:
    """The text as people write it: no space before punctuation or inside `don't`, one between sentences."""
    text = clean_text(text).translate(_PLAIN_MARKS)
    text = _SPLIT_APOSTROPHE.sub("'", text)
    text = _SPACED_MARK.sub(r"\1", text)
    text = _SPACED_PRICE.sub(r"\1", text)
    return _GLUED_SENTENCE.sub(r"\1 ", text)


def _beside(file: Path, kind: str, report: ReadReport) -> Iterator[str | None]:
    """The lines of the annotation file beside `file`; None for each line that it does not have."""
    beside = file.with_name(file.name.replace("dialogues_", f"dialogues_{kind}_", 1))
    if beside == file or not beside.is_file():
        return repeat(None)
    return chain(lines(beside, report), repeat(None))


def _per_turn(codes: str | None, texts: Sequence[str], report: ReadReport) -> Sequence[str]:
    """One code for each turn; none at all where their number differs, since nobody knows which is whose."""
    found = codes.split() if codes else []
    if len(found) == len(texts):
        return found
    if found:
        report.remark("dialogues whose annotations do not match their turns")
    return [""] * len(texts)


def _label(kind: LabelKind, names: dict[str, str], code: str) -> tuple[Label, ...]:
    name = names.get(code, "")
    return (Label(kind, name),) if name else ()
