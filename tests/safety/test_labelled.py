"""Labelled lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.errors import CorpusError, NotFoundError
from ranker.safety.labelled import LABELS, LINES, Line, Task, read_lines, tuning_lines


def test_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "lines.tsv"
    file.write_text("safe\tHello  there\nunsafe\tGo away\n", "utf-8")
    assert read_lines(file, LABELS["offence"]) == [Line("safe", "Hello there"), Line("unsafe", "Go away")]


@pytest.mark.parametrize("row", ["kind\tHello", "safe", "safe\t ", "Hello"])
def test_rows_of_another_form(tmp_path: Path, row: str) -> None:
    file = tmp_path / "lines.tsv"
    file.write_text(f"safe\tHello\n{row}\n", "utf-8")
    with pytest.raises(CorpusError, match="line 2"):
        read_lines(file, LABELS["offence"])


def test_no_lines(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_lines(tmp_path / "none.tsv", LABELS["offence"])
    (tmp_path / "empty.tsv").write_text("", "utf-8")
    with pytest.raises(CorpusError, match="empty"):
        read_lines(tmp_path / "empty.tsv", LABELS["offence"])


@pytest.mark.parametrize(("task", "found", "harmless"), [("crisis", 300, 600), ("offence", 250, 350)])
def test_there_are_enough_tuning_lines(task: Task, found: int, harmless: int) -> None:
    lines = tuning_lines(task)
    labels = [line.label for line in lines]
    assert set(labels) == set(LABELS[task])
    assert labels.count(LABELS[task][-1]) >= harmless
    assert len(lines) - labels.count(LABELS[task][-1]) >= found
    assert len({line.text.casefold() for line in lines}) == len(lines)


def test_no_line_is_both_for_tuning_and_for_checking() -> None:
    for task in LABELS:
        check = LINES / f"check_{task}.tsv"
        if not check.is_file():
            pytest.skip("there are no check lines")
        seen = {line.text.casefold() for line in tuning_lines(task)}
        # Counted, not shown: who tunes must not see them.
        assert sum(line.text.casefold() in seen for line in read_lines(check, LABELS[task])) == 0
