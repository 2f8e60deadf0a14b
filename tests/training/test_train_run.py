"""Whole stages on toy data: they learn, they resume exactly, they refuse what they must."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from ranker.corpora import Pair
from ranker.encoders import load_encoder
from ranker.encoders.torch import TorchEncoder
from ranker.errors import TrainingError
from ranker.training.folder import StageResult
from ranker.training.models import load_model
from ranker.training.run import run_recipe
from ranker.training.settings import ModelSettings, Recipe, StageSettings
from ranker.types import Encoder

Measure = Callable[[Encoder], Mapping[str, float]]
torch.set_num_threads(1)


def silent() -> Console:
    return Console(file=io.StringIO())


def train(
    folder: Path, corpus: Path, measure: Measure, model: ModelSettings, stage: StageSettings
) -> StageResult:
    (result,) = run_recipe(
        Recipe(model=model, finetune=stage), folder, {"generic": corpus}, measure, console=silent()
    )
    return result


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{path.relative_to(folder)}:{name}": tensor
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def same_weights(one: Path, other: Path) -> bool:
    left, right = weights(one), weights(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def rows_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_it_learns(
    tmp_path: Path, corpus: Path, measure: Measure, model_settings: ModelSettings, stage: StageSettings
) -> None:
    stage = replace(stage, epochs=12.0, eval_steps=12, scale_learning_rate=0.1)
    result = train(tmp_path, corpus, measure, model_settings, stage)
    folder = tmp_path / "finetune"
    rows = rows_of(folder)
    losses = [row["loss"] for row in rows if "loss" in row]
    figures = [row["valid_p_at_1"] for row in rows if "valid_p_at_1" in row]
    assert losses[-1] < 0.7 * losses[0]
    assert figures[0] < 15
    assert result.metrics["p_at_1"] == max(figures) > 50
    assert [row["step"] for row in rows if "valid_p_at_1" in row] == [0, 12, 24, 36]
    assert rows[-2]["scale"] != 20.0
    assert (folder / "plot.png").stat().st_size > 1000
    assert {path.name for path in folder.iterdir()} == {
        "settings.json",
        "metrics.jsonl",
        "plot.png",
        "model",
        "result.json",
    }
    encoder = load_encoder(folder / "model")
    assert measure(encoder)["p_at_1"] == pytest.approx(result.metrics["p_at_1"], abs=1)
    again = train(tmp_path, corpus, measure, model_settings, stage)
    assert again == result


def test_other_settings_are_refused(
    tmp_path: Path, corpus: Path, measure: Measure, model_settings: ModelSettings, stage: StageSettings
) -> None:
    short = replace(stage, epochs=1.0)
    train(tmp_path, corpus, measure, model_settings, short)
    train(tmp_path, corpus, measure, model_settings, replace(short, save_minutes=9.0))
    with pytest.raises(TrainingError, match=r"finetune\.learning_rate.*--fresh"):
        train(tmp_path, corpus, measure, model_settings, replace(short, learning_rate=1e-3))
    changed = tmp_path / "changed"
    changed.mkdir()
    text = (corpus / "train.jsonl").read_text().replace("kitten", "puppy")
    (changed / "train.jsonl").write_text(text)
    with pytest.raises(TrainingError, match="pairs_sha256"):
        train(tmp_path, changed, measure, model_settings, short)
    recipe = Recipe(model=model_settings, finetune=replace(short, learning_rate=1e-3))
    (result,) = run_recipe(recipe, tmp_path, {"generic": corpus}, measure, fresh=True, console=silent())
    assert result.steps == 3


def test_missing_corpus_and_small_corpus(
    tmp_path: Path, corpus: Path, measure: Measure, model_settings: ModelSettings, stage: StageSettings
) -> None:
    with pytest.raises(TrainingError, match="--data ed=PATH"):
        train(tmp_path, corpus, measure, model_settings, replace(stage, corpora=("ed",)))
    with pytest.raises(TrainingError, match="do not fill a batch"):
        train(tmp_path, corpus, measure, model_settings, replace(stage, batch_size=500))


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the training process did not get there"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def long(model_settings: ModelSettings, stage: StageSettings) -> tuple[ModelSettings, StageSettings]:
    """18 steps, 3 an epoch, with everything that a checkpoint must bring back: dropout, a learned scale."""
    return (
        replace(model_settings, dropout=0.1),
        replace(stage, epochs=6.0, eval_steps=9, save_minutes=1e-6, scale_learning_rate=0.1),
    )


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: Path,
    measure: Measure,
    long: tuple[ModelSettings, StageSettings],
) -> StageResult:
    return train(tmp_path_factory.mktemp("whole"), corpus, measure, *long)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted_and_resumed_is_uninterrupted(
    tmp_path: Path,
    corpus: Path,
    measure: Measure,
    long: tuple[ModelSettings, StageSettings],
    uninterrupted: StageResult,
    number: signal.Signals,
) -> None:
    """By value: every weight, cut within the third epoch, where the shuffle has changed."""
    child = multiprocessing.get_context("fork").Process(
        target=train, args=(tmp_path, corpus, measure, *long), daemon=True
    )
    child.start()
    folder = tmp_path / "finetune"
    _until(lambda: any(int(path.name[11:]) >= 7 for path in folder.glob("checkpoints/checkpoint-*")))
    os.kill(child.pid or 0, number)
    child.join(60)
    assert child.exitcode not in (None, 0)
    assert not (folder / "result.json").exists()
    resumed = train(tmp_path, corpus, measure, *long)
    assert same_weights(uninterrupted.model, resumed.model)
    assert resumed.steps == 18
    assert resumed.metrics == uninterrupted.metrics
    assert [row["step"] for row in rows_of(folder) if "valid_p_at_1" in row] == [0, 9, 18]


def test_early_stop(
    tmp_path: Path, corpus: Path, model_settings: ModelSettings, stage: StageSettings
) -> None:
    falling = iter(range(90, 0, -1))
    stage = replace(stage, epochs=20.0, eval_steps=3, patience=2)
    result = train(tmp_path, corpus, lambda _: {"p_at_1": float(next(falling))}, model_settings, stage)
    assert (result.steps, result.best_step, result.metrics) == (6, 0, {"p_at_1": 90.0})


def test_lora_ships_small_and_merges(
    tmp_path: Path,
    corpus: Path,
    pairs: list[Pair],
    measure: Measure,
    model_settings: ModelSettings,
    stage: StageSettings,
) -> None:
    model = replace(model_settings, lora_rank=4)
    result = train(tmp_path, corpus, measure, model, replace(stage, epochs=8.0, learning_rate=2e-2))
    full = sum(tensor.numel() for tensor in weights(result.model).values())
    adapter = weights(tmp_path / "finetune" / "adapter")
    assert sum(tensor.numel() for tensor in adapter.values()) == result.trainable < full / 2
    assert result.metrics["p_at_1"] > 20
    merged, adapted = (
        TorchEncoder(load_model(tmp_path / "finetune" / name), max_tokens=32) for name in ("model", "adapter")
    )
    texts = [pair.response for pair in pairs]
    np.testing.assert_allclose(merged.encode_candidates(texts), adapted.encode_candidates(texts), atol=1e-5)


def test_lora_resumes(
    tmp_path: Path,
    corpus: Path,
    pairs: list[Pair],
    measure: Measure,
    model_settings: ModelSettings,
    stage: StageSettings,
) -> None:
    model = replace(model_settings, lora_rank=4, heads="separate")
    stage = replace(stage, save_minutes=1e-6)
    whole = train(tmp_path / "whole", corpus, measure, model, stage)
    seen = 0

    def failing(encoder: Encoder) -> Mapping[str, float]:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise MemoryError("as if killed")
        return measure(encoder)

    with pytest.raises(MemoryError):
        train(tmp_path / "cut", corpus, failing, model, stage)
    resumed = train(tmp_path / "cut", corpus, measure, model, stage)
    assert same_weights(whole.model, resumed.model)


SMALL_TRANSFORMER = ModelSettings(
    architecture="transformer",
    towers="separate",
    heads="separate",
    dropout=0.1,
    frozen_embeddings=False,
    max_tokens=32,
    layers=1,
    heads_per_layer=2,
    width=24,
    feed_forward=32,
    vocabulary=200,
)


@pytest.mark.parametrize("kind", ["two towers", "shared with heads", "transformer"])
def test_architectures_train_and_load(
    tmp_path: Path,
    corpus: Path,
    pairs: list[Pair],
    measure: Measure,
    model_settings: ModelSettings,
    stage: StageSettings,
    kind: str,
) -> None:
    model = {
        "two towers": replace(model_settings, towers="separate", pooling="cls"),
        "shared with heads": replace(model_settings, heads="separate"),
        "transformer": SMALL_TRANSFORMER,
    }[kind]
    result = train(tmp_path, corpus, measure, model, replace(stage, epochs=10.0))
    encoder = load_encoder(result.model)
    assert measure(encoder)["p_at_1"] == pytest.approx(result.metrics["p_at_1"], abs=1)
    assert result.metrics["p_at_1"] > 30
    text = pairs[0].response
    as_context = encoder.encode_contexts([pairs[0].context.of(text)])
    assert not np.allclose(as_context, encoder.encode_candidates([text]), atol=1e-3), "the sides are the same"


def test_stages_follow_each_other(
    tmp_path: Path, corpus: Path, measure: Measure, model_settings: ModelSettings, stage: StageSettings
) -> None:
    """pretrain -> finetune with mined negatives -> distil from the first model."""
    short = replace(stage, epochs=3.0)
    teacher = train(tmp_path / "teacher", corpus, measure, model_settings, replace(stage, epochs=8.0))
    recipe = Recipe(
        model=model_settings,
        pretrain=replace(short, pairs=72),
        finetune=replace(short, hard_negatives=2),
        distill=replace(short, epochs=8.0, eval_steps=24, teachers=(str(teacher.model),), label_weight=0.0),
    )
    results = run_recipe(recipe, tmp_path / "run", {"generic": corpus}, measure, console=silent())
    assert [result.stage for result in results] == ["pretrain", "finetune", "distill"]
    assert [result.pairs for result in results] == [72, 108, 108]
    assert results[2].metrics["p_at_1"] > results[0].metrics["p_at_1"]
    begun = [rows_of(tmp_path / "run" / result.stage)[0]["valid_p_at_1"] for result in results]
    assert begun[1:] == [results[0].metrics["p_at_1"], results[1].metrics["p_at_1"]]
    only = run_recipe(
        recipe,
        tmp_path / "other",
        {"generic": corpus},
        measure,
        only=["distill"],
        start=results[0].model,
        console=silent(),
    )
    assert [result.stage for result in only] == ["distill"]
