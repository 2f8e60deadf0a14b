"""Presets and what may be changed in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.errors import ConfigError, NotFoundError
from ranker.training.settings import ModelSettings, Recipe, StageSettings, load_recipe, preset_names


def test_every_preset_loads() -> None:
    assert preset_names() == ["mini", "quality", "transformer"]
    stages = {name: list(load_recipe(name).stages()) for name in preset_names()}
    assert stages == {
        "mini": ["distill"],
        "quality": ["finetune"],
        "transformer": ["pretrain", "finetune"],
    }
    paper = load_recipe("transformer").model
    assert (paper.layers, paper.heads_per_layer, paper.width, paper.towers) == (4, 6, 300, "separate")


def test_overrides_are_toml_or_plain_text() -> None:
    recipe = load_recipe(
        "quality",
        [
            "finetune.epochs=3",
            "finetune.corpora=['ed', 'reddit']",
            "model.base=some/folder",
            "pretrain.scale=9",
        ],
    )
    assert recipe.finetune is not None
    assert recipe.finetune.epochs == 3.0
    assert recipe.finetune.corpora == ("ed", "reddit")
    assert recipe.model.base == "some/folder"
    assert list(recipe.stages()) == ["pretrain", "finetune"]
    assert list(recipe.stages(["finetune"])) == ["finetune"]


def test_a_file_is_a_preset_too(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[model]\nbase = "x"\n[finetune]\nbatch_size = 8\n')
    recipe = load_recipe(str(path))
    assert recipe == Recipe(model=ModelSettings(base="x"), finetune=StageSettings(batch_size=8))


@pytest.mark.parametrize(
    ("preset", "override", "message"),
    [
        ("minni", "", "Did you mean 'mini'"),
        ("quality", "finetune.epoch=1", "Did you mean 'epochs'"),
        ("quality", "finetune.epochs", "table.key=value"),
        ("quality", "finetun.epochs=1", "unknown table"),
        ("quality", "finetune.batch_size=1", "batch_size must be 2"),
        ("quality", "finetune.scale=0", "scale must be above 0"),
        ("quality", "finetune.precision=fp8", "must be one of"),
        ("mini", "model.base=''", "no base"),
        ("mini", "distill.hard_negatives=2", "not both"),
        ("transformer", "model.width=301", "not a multiple"),
        ("transformer", "model.lora_rank=8", "lora_rank is for pretrained"),
    ],
)
def test_wrong_settings_say_so(preset: str, override: str, message: str) -> None:
    with pytest.raises((ConfigError, NotFoundError), match=message):
        load_recipe(preset, [override] if override else [])


def test_stages_that_cannot_run() -> None:
    recipe = load_recipe("mini", ["distill.teachers=[]", "finetune.epochs=1"])
    assert list(recipe.stages(["finetune"])) == ["finetune"]
    with pytest.raises(ConfigError, match="--teacher"):
        recipe.stages()
    with pytest.raises(NotFoundError, match="pretrain"):
        recipe.stages(["pretrain"])
