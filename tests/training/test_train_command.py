"""`ranker train` and `ranker evaluate` as people type them, on toy data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranker.cli import app
from ranker.errors import NotFoundError


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def data(tmp_path: Path, corpus: Path) -> str:
    """A corpus whose validation rows are its training rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "valid"):
        shutil.copy(corpus / "train.jsonl", folder / f"{split}.jsonl")
    return f"generic={folder}"


def test_train_then_evaluate(tmp_path: Path, base: Path, data: str) -> None:
    preset = tmp_path / "toy.toml"
    preset.write_text(
        '[model]\nfrozen_embeddings = false\nmax_tokens = 32\n[finetune]\ncorpora = ["generic"]\n'
        'batch_size = 36\nmicro_batch = 36\nlearning_rate = 3e-3\neval_steps = 12\nprecision = "fp32"\n'
    )
    home = str(tmp_path / "home")
    command = [
        "--home",
        home,
        "train",
        str(preset),
        "--data",
        data,
        "--base",
        str(base),
        "--valid",
        "generic",
    ]
    command += ["--name", "first"]
    command += ["--set", "finetune.epochs=16", "--set", "finetune.scale=20"]
    result = json.loads(run(*command))
    assert (result["stage"], result["steps"]) == ("finetune", 48)
    assert result["metrics"]["p_at_1"] > 30
    assert result["model"] == str(tmp_path / "home/runs/first/finetune/model")
    assert json.loads(run(*command)) == result, "the same command again has nothing left to do"
    evaluate = ["--home", home, "evaluate", "--encoder", result["model"], "--data", data, "--pool", data]
    found = json.loads(run(*evaluate))
    assert found["precision"][0]["p_at_1"]["mean"] == pytest.approx(result["metrics"]["p_at_1"], abs=2)
    assert [figures["grouping"] for figures in found["precision"]] == ["shuffled", "in_order"]
    assert found["retrieval"]["pool"] == 108
    assert found["retrieval"]["recall_at_100"] > 90
    shown = run(*evaluate, "--no-json")
    assert "1 of 100, shuffled" in shown
    assert "AVG BLEU" in shown
    table = run(*command, "--no-json")
    assert f"{result['best_step']} of 48" in table


def test_published_figures_stand_beside_empathetic_dialogues(tmp_path: Path) -> None:
    header = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags\n"
    rows = [
        f"conv:{row},{turn},joyful,prompt,{turn - 1},turn {turn} of {row},,\n"
        for row in range(101)
        for turn in (1, 2)
    ]
    (tmp_path / "valid.csv").write_text(header + "".join(rows))
    shown = run("evaluate", "--encoder", "hashing", "--data", f"ed={tmp_path}", "--no-json")
    assert "BERT, fine-tuned" in shown
    assert "65.92" in shown


def test_a_missing_validation_corpus_is_named(data: str) -> None:
    with pytest.raises(NotFoundError, match="--data ed=PATH"):
        run("train", "quality", "--data", data)
