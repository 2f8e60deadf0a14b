"""`ranker train-generator seq2seq` on toy data: it learns, it resumes exactly, it refuses what it must."""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

from ranker.cli import app
from ranker.corpora import Pair
from ranker.errors import ConfigError, NotFoundError, RankerError, TrainingError
from ranker.generation import LocalGenerator, load_generator
from ranker.home import Home
from ranker.storage import current
from ranker.training.generators import GeneratorResult, Job
from ranker.training.seq2seq import Seq2SeqSettings, Seq2SeqTask, train
from ranker.training.tasks import StepLoss, TokenMeter, batch_plan
from ranker.types import Context

torch.set_num_threads(1)

Tables = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A corpus whose validation rows are its training rows."""
    folder = tmp_path_factory.mktemp("data")
    for split in ("train", "valid"):
        shutil.copy(corpus / "train.jsonl", folder / f"{split}.jsonl")
    return folder


def tables(**training: Any) -> Tables:
    """26 steps of 8 pairs, 13 an epoch."""
    return {
        "model": {"layers": 1, "heads": 2, "width": 32, "feed_forward": 64, "vocabulary": 200},
        "training": {
            "corpora": ["generic"],
            "valid": "generic",
            "epochs": 2.0,
            "batch_size": 8,
            "learning_rate": 1e-2,
            "eval_steps": 9,
            "precision": "fp32",
            **training,
        },
    }


def job(place: Path, data: Path, given: Tables, *, fresh: bool = False) -> Job:
    return Job(
        tables=given,
        source="toy.toml",
        data={"generic": data},
        folder=place / "run",
        out=place / "out",
        home=Home(place),
        fresh=fresh,
        console=Console(file=io.StringIO()),
    )


def weights(result: GeneratorResult) -> dict[str, torch.Tensor]:
    folder = current(result.generator)
    assert folder is not None
    return load_file(folder / "weights.safetensors")


def same_weights(one: GeneratorResult, other: GeneratorResult) -> bool:
    left, right = weights(one), weights(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def rows_of(place: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]


def test_it_learns(tmp_path: Path, data: Path, pairs: list[Pair]) -> None:
    given = tables(epochs=14.0, batch_size=12, learning_rate=5e-3, eval_steps=63)
    given["model"] |= {"width": 64, "feed_forward": 128, "dropout": 0.0}
    result = train(job(tmp_path, data, given))
    assert (result.steps, result.pairs) == (126, 108)
    figures = [row["valid_perplexity"] for row in rows_of(tmp_path) if "valid_perplexity" in row]
    assert figures[0] > result.metrics["perplexity"] == min(figures)
    assert result.metrics["perplexity"] < 1.2, "above 1.5 where the noun is not taken over"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "settings.json",
        "metrics.jsonl",
        "plot.png",
        "model",
        "result.json",
    }
    made = load_generator(tmp_path / "out", Home(tmp_path))
    assert isinstance(made, LocalGenerator)
    # What was measured while training is what the installed generator says of the same pairs.
    likelihoods = made.loglikelihood(pairs)
    total, tokens = (sum(column) for column in zip(*likelihoods, strict=True))
    assert math.exp(-total / tokens) == pytest.approx(result.metrics["perplexity"], rel=1e-4)
    for asked, replied in (
        ("There was a zebra near our road.", "Was the zebra as you had hoped?"),
        ("We looked at the cake all day.", "Tell me more about the cake!"),
    ):
        assert made.reply(Context((asked,))).text == replied
    began = time.monotonic()
    assert train(job(tmp_path, data, given)) == result, "the same job again has nothing left to do"
    assert time.monotonic() - began < 10


def _until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the training process did not get there"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data: Path) -> GeneratorResult:
    return train(job(tmp_path_factory.mktemp("whole"), data, tables(save_minutes=1e-6)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted_and_resumed_is_uninterrupted(
    tmp_path: Path, data: Path, uninterrupted: GeneratorResult, number: signal.Signals
) -> None:
    """By value: every weight, with dropout, cut within the second epoch."""
    this = job(tmp_path, data, tables(save_minutes=1e-6))
    child = multiprocessing.get_context("fork").Process(target=train, args=(this,), daemon=True)
    child.start()
    _until(lambda: any(int(path.name[11:]) >= 15 for path in this.folder.glob("checkpoints/checkpoint-*")))
    os.kill(child.pid or 0, number)
    child.join(60)
    assert child.exitcode not in (None, 0)
    assert not (this.folder / "result.json").exists()
    assert not this.out.exists(), "nothing is installed before the end"
    resumed = train(this)
    assert resumed.steps == uninterrupted.steps == 26
    assert resumed.metrics == uninterrupted.metrics
    assert same_weights(resumed, uninterrupted)
    assert [row["step"] for row in rows_of(tmp_path) if "valid_loss" in row] == [9, 18, 26]


def test_accumulated_parts_are_a_batch(tmp_path: Path, data: Path) -> None:
    given = tables(epochs=1.0)
    given["model"]["dropout"] = 0.0
    whole = train(job(tmp_path / "whole", data, given))
    given["training"]["accumulate"] = 2
    parts = train(job(tmp_path / "parts", data, given))
    assert parts.steps == whole.steps == 13
    # A batch's mean over tokens is not quite the mean of its parts' means.
    assert parts.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=0.02)


def test_other_settings_are_refused(tmp_path: Path, data: Path) -> None:
    short = tables(epochs=0.2)
    train(job(tmp_path, data, short))
    train(job(tmp_path, data, tables(epochs=0.2, save_minutes=9.0)))
    with pytest.raises(TrainingError, match=r"training\.learning_rate.*--fresh"):
        train(job(tmp_path, data, tables(epochs=0.2, learning_rate=1e-3)))
    again = train(job(tmp_path, data, tables(epochs=0.2, learning_rate=1e-3), fresh=True))
    assert again.steps == 3


@pytest.mark.parametrize(
    ("table", "key", "value", "error", "says"),
    [
        ("model", "widht", 30, ConfigError, "Did you mean 'width'"),
        ("model", "width", 31, ConfigError, "multiple of heads"),
        ("model", "dropout", 1.0, ConfigError, "dropout"),
        ("model", "vectors", "/nowhere/at/all", NotFoundError, "no word vectors"),
        ("training", "epochs", 0, ConfigError, "epochs must be above 0"),
        ("training", "accumulate", 3, ConfigError, "multiple of accumulate"),
        ("training", "corpora", ["ed"], TrainingError, "--data ed=PATH"),
        ("training", "valid", "ed", NotFoundError, "--data ed=PATH"),
        ("training", "batch_size", 500, TrainingError, "do not fill a batch"),
        ("finetune", "epochs", 1, ConfigError, r"unknown table \[finetune\]"),
    ],
)
def test_wrong_settings(
    tmp_path: Path, data: Path, table: str, key: str, value: object, error: type[RankerError], says: str
) -> None:
    given = tables()
    given.setdefault(table, {})[key] = value
    with pytest.raises(error, match=says):
        train(job(tmp_path, data, given))


def test_batch_plan() -> None:
    lengths = [(row % 7 * 10, row % 5) for row in range(230)]
    plan = batch_plan(lengths, 10, 2.5, seed=1)
    assert len(plan) == 58  # 23 batches an epoch
    assert plan == batch_plan(lengths, 10, 2.5, seed=1)
    assert plan != batch_plan(lengths, 10, 2.5, seed=2)
    for epoch in (plan[:23], plan[23:46]):
        assert sorted(row for batch in epoch for row in batch) == list(range(230)), "each row once"
    assert plan[:23] != plan[23:46]
    assert all(len(batch) == 10 for batch in plan)
    # Rows of one length stay together: at most the two batches at the borders mix.
    mixed = sum(len({lengths[row][0] // 8 for row in batch}) > 1 for batch in plan[:23])
    assert mixed <= 6
    assert len(batch_plan([(1, 1)] * 25, 10, 2.0, seed=0)) == 4, "a rest waits"


def test_word_vectors_are_placed_and_toned_down(tmp_path: Path, pairs: list[Pair]) -> None:
    (tmp_path / "vectors.txt").write_text("zebra 30 0\nunheard 1 1\ncake 0 30\n")
    settings = Seq2SeqSettings(layers=1, heads=2, width=32, feed_forward=64)
    torch.manual_seed(0)
    plain = Seq2SeqTask(settings, pairs, pairs[:2])
    with_vectors = Seq2SeqSettings(
        layers=1, heads=2, width=32, feed_forward=64, vectors=str(tmp_path / "vectors.txt")
    )
    task = Seq2SeqTask(with_vectors, pairs, pairs[:2])
    task.save(tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    zebra, cake = (task.model.embeddings[vocabulary[word]].detach().numpy() for word in ("zebra", "cake"))
    assert zebra[0] > 10 * np.abs(zebra[1:]).max()
    assert cake[1] == pytest.approx(zebra[0])
    assert float(task.model.embeddings.detach().std()) == pytest.approx(
        float(plain.model.embeddings.detach().std()), rel=0.1
    )


def test_long_texts_are_cut(tmp_path: Path, data: Path, pairs: list[Pair]) -> None:
    settings = Seq2SeqSettings(layers=1, heads=2, width=32, feed_forward=64, context_tokens=3, reply_tokens=4)
    task = Seq2SeqTask(settings, pairs, pairs[:2])
    assert set(task.lengths) == {(3, 5)}
    batch = task.batch([0, 5])
    assert batch["contexts"].shape == (2, 3)
    assert batch["replies"].shape == batch["targets"].shape == (2, 4)
    assert task.loss(batch).tokens == 8


def test_meter() -> None:
    meter = TokenMeter()
    assert meter.row() == {}
    for nll, tokens in ((1.0, 30), (3.0, 10)):
        meter.add(StepLoss(torch.tensor(0.0), nll, tokens, {"emotion": nll}))
    assert meter.step() == 40
    assert meter.line() == "loss 1.500  perplexity 4.5"
    assert meter.row() == {"perplexity": pytest.approx(math.exp(1.5), abs=1e-3), "emotion": 2.0}
    assert meter.row() == {}


def test_the_command(tmp_path: Path, data: Path) -> None:
    preset = tmp_path / "toy.toml"
    preset.write_text(
        "[model]\nlayers = 1\nheads = 2\nwidth = 32\nfeed_forward = 64\n"
        '[training]\ncorpora = ["generic"]\nvalid = "generic"\nbatch_size = 8\nprecision = "fp32"\n'
    )
    command = ["--home", str(tmp_path), "train-generator", "seq2seq", "--data", f"generic={data}"]
    command += ["--preset", str(preset), "--name", "toy", "--set", "training.epochs=0.3"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["kind"], result["steps"], result["pairs"]) == ("seq2seq", 4, 108)
    assert result["generator"] == str(tmp_path / "generators" / "toy")
    made = load_generator("toy", Home(tmp_path))
    assert made.name == "toy"
    shown = CliRunner().invoke(app, [*command, "--no-json"], catch_exceptions=False)
    assert "4 of 4" in shown.stdout
    with pytest.raises(NotFoundError, match="Did you mean 'seq2seq'"):
        CliRunner().invoke(app, ["train-generator", "seq3seq", "--data", "ed=x"], catch_exceptions=False)
