"""`ranker train-safety` and `ranker evaluate safety`, on few lines and without weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ranker.cli import main
from ranker.safety.store import read_manifest


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    crisis = "".join(
        f"{label}\t{text} {row}\n"
        for row in range(5)
        for label, text in (
            ("self-harm", "the dark thoughts are back, day"),
            ("violence", "i fear his fists, day"),
            ("emergency", "her lips went grey, minute"),
            ("none", "we baked bread on day"),
        )
    )
    offence = "".join(
        f"{label}\t{text} {row}\n"
        for row in range(5)
        for label, text in (("unsafe", "you have the wit of turnip"), ("safe", "what a lovely day number"))
    )
    for part in ("tune", "check"):
        (folder / f"{part}_crisis.tsv").write_text(crisis, "utf-8")
        (folder / f"{part}_offence.tsv").write_text(offence, "utf-8")
    return folder


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ranker", *arguments])
    code = 0
    try:
        main()
    except SystemExit as done:
        code = int(done.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def figures(text: str) -> dict[str, dict[str, Any]]:
    rows = [json.loads(row) for row in text.splitlines()]
    return {row["task"]: row for row in rows}


def test_train_then_evaluate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lines: Path
) -> None:
    monkeypatch.setattr("ranker.cli.safety.ordinary_turns", lambda home: ["see you on monday", "good soup"])
    home = tmp_path / "own"
    options = ("--lines", str(lines), "--encoder", "hashing", "--json")
    code, out, err = run(monkeypatch, capsys, "--home", str(home), "train-safety", *options)
    assert code == 0, err
    assert figures(out)["crisis"]["recall"]["total"] == 15
    manifest = read_manifest(home / "models" / "safety" / "crisis")
    assert (manifest.lines, manifest.ordinary) == (20, 2)
    first = manifest.sha256

    code, out, err = run(monkeypatch, capsys, "--home", str(home), "evaluate", "safety", *options)
    assert code == 0, err
    assert figures(out)["crisis"]["recall"]["percent"] == 100.0
    assert figures(out)["crisis"]["named"]["percent"] == 100.0
    assert figures(out)["offence"]["false_alarms"]["percent"] == 0.0

    run(monkeypatch, capsys, "--home", str(home), "train-safety", *options)
    assert read_manifest(home / "models" / "safety" / "crisis").sha256 == first


def test_another_encoder_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: Path
) -> None:
    arguments = ("evaluate", "safety", "--lines", str(lines), "--encoder", "hashing", "--no-json")
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "ranker train-safety" in err
    assert "false alarms" in out


def test_no_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(monkeypatch, capsys, "train-safety", "--lines", str(tmp_path), "--encoder", "hashing")
    assert code == 1
    assert "there are no lines" in err
