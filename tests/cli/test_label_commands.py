"""`ranker label`, `ranker train-labels` and `ranker evaluate labels`, on an application of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from ranker.cli.label import evaluate_labels, label
from ranker.cli.train_labels import train_labels
from ranker.errors import ConfigError, InputError, IntegrityError, MismatchError, NotFoundError
from ranker.labels import EMOTIONS

app = typer.Typer()
app.command("label")(label)
app.command("evaluate-labels")(evaluate_labels)
app.command("train-labels")(train_labels)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """EmpatheticDialogues in small: the situation names its emotion."""
    header = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags\n"
    for split, copies in (("train", 6), ("valid", 1)):
        lines = [
            f"{split}{copy}{name},{turn},{name},I felt {name} on day {copy}.,{turn - 1},"
            f"{('I was ' + name) if turn == 1 else 'Oh.'},,\n"
            for copy in range(copies)
            for name in EMOTIONS
            for turn in (1, 2)
        ]
        (tmp_path / f"{split}.csv").write_text(header + "".join(lines), "utf-8")
    return tmp_path


def test_label_in_a_pipe_is_json() -> None:
    done = run("label", "I was so proud of my son.", "I felt so lonely.", "-k", "2")
    assert done.exit_code == 0, done.output
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["text"] == "I was so proud of my son."
    assert first["labels"][0]["name"] == "proud"
    assert second["labels"][0]["name"] == "lonely"
    assert [found["kind"] for found in first["labels"]] == ["emotion", "emotion"]
    assert 1 >= first["labels"][0]["probability"] >= first["labels"][1]["probability"] > 0


def test_label_as_bars() -> None:
    done = run("label", "What happened?", "", "--kind", "intent", "--no-json")
    assert "questioning" in done.stdout
    assert "█" in done.stdout
    assert "%" in done.stdout
    assert "nothing to judge by" in done.stdout


def test_label_from_stdin_answers_every_line() -> None:
    done = run(
        "label", "--kind", "topic", "-k", "1", stdin="The orbit of the moon\n\nThe goalie saved it\r\n"
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == ["The orbit of the moon", "", "The goalie saved it"]
    assert [len(row["labels"]) for row in rows] == [1, 0, 1]
    assert rows[0]["labels"][0]["name"] == "space"


def test_label_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.bin").write_bytes(b"nonsense")
    assert isinstance(run("label", "x", "--kind", "mood").exception, NotFoundError)
    assert isinstance(run("label", "x", "--model", str(tmp_path / "none")).exception, NotFoundError)
    assert isinstance(run("label", "x", "--model", str(tmp_path)).exception, NotFoundError)
    assert isinstance(run("label", "x", "--model", str(tmp_path / "bad.bin")).exception, IntegrityError)
    assert run("label", "x", "-k", "0").exit_code == 2


def test_train_evaluate_and_label_a_head(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    folder = str(tmp_path / "model")
    data = ("--data", f"ed={corpus}", "--encoder", "hashing")
    done = run("train-labels", "head", *data, "--out", folder)
    assert done.exit_code == 0, done.output
    assert "ED valid, situations" in done.stdout
    assert "ED valid, contexts" in done.stdout
    done = run("evaluate-labels", *data, "--model", folder, "--json")
    situations, contexts = (json.loads(line) for line in done.stdout.splitlines())
    assert situations["rows"] == contexts["rows"] == 32
    assert situations["top_1"] > 50  # of 32 emotions, from 6 examples each
    done = run("label", "I felt proud on day 1.", "--model", folder, "--encoder", "hashing")
    assert json.loads(done.stdout)["labels"][0]["name"] == "proud"
    assert isinstance(run("label", "x", "--model", folder).exception, MismatchError)
    wrong = run("label", "x", "--model", folder, "--encoder", "hashing", "--kind", "topic")
    assert isinstance(wrong.exception, NotFoundError)


def test_train_emotion_into_the_home(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("fasttext", reason="fastText is not installed")
    done = run("train-labels", "emotion", "--data", f"ed={corpus}")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "home" / "models" / "labels" / "emotion"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["training"]["rows"] == 192
    figures = {figure["name"]: figure["value"] for figure in manifest["figures"]}
    assert figures["top-1, ED valid, situations"] > 90
    assert (folder / manifest["file"]).stat().st_size == manifest["size"] < 2_000_000
    assert json.loads(run("label", "I felt proud on day 1.").stdout)["labels"][0]["name"] == "proud"


def test_evaluate_shows_both_and_plots(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot = tmp_path / "plot.png"
    done = run("evaluate-labels", "--data", f"ed={corpus}", "--no-json", "--plot", str(plot))
    assert done.exit_code == 0, done.output
    assert "situations" in done.stdout
    assert "contexts" in done.stdout
    assert "macro f1" in done.stdout
    assert "CAiRE" in done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_missing_data_is_named(corpus: Path) -> None:
    done = run("evaluate-labels", "--data", f"ed={corpus}", "--kind", "topic")
    assert isinstance(done.exception, ConfigError)
    assert "--data 20news=PATH" in str(done.exception)
    assert isinstance(run("train-labels", "mood", "--data", "ed=x").exception, NotFoundError)
    assert isinstance(run("train-labels", "head", "--data", "nonsense").exception, ConfigError | InputError)
