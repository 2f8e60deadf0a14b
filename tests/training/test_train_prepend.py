"""Labels prepended from training to answering: one set of tokens, one fingerprint, clean text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from ranker.bundle import Bundle
from ranker.cli import app
from ranker.corpora import Pair
from ranker.encoders import OnnxEncoder, load_encoder
from ranker.encoders.card import EncoderCard, Origin
from ranker.encoders.torch import TorchEncoder
from ranker.engine import Ranker
from ranker.errors import ConfigError, MismatchError, TrainingError
from ranker.home import Home
from ranker.labels import Prepend, Prepender, open_prepender, read_prepender
from ranker.labels.compact import write_fasttext
from ranker.labels.fasttext import FastTextModel, FastTextShape
from ranker.labels.store import Manifest, Training
from ranker.training.export import export_onnx
from ranker.training.folder import StageResult
from ranker.training.labels import find_prepender
from ranker.training.models import build_model, cores
from ranker.training.run import run_recipe
from ranker.training.settings import ModelSettings, Recipe, StageSettings, load_recipe
from ranker.types import Context, Encoder

Measure = Callable[[Encoder], Mapping[str, float]]
LABELS = ("house", "kitten", "qqq")
torch.set_num_threads(1)


def write_labels(home: Home, words: tuple[str, str, str] = ("road", "more", "hoped")) -> None:
    """An emotion model whose labels are known by a word each."""
    rows = 3 * np.eye(3, dtype=np.float32)
    model = FastTextModel(FastTextShape(dim=3, bucket=0), LABELS, words, rows, np.eye(3, dtype=np.float32))
    manifest = Manifest("emotion", LABELS, Training("made up", "CC0-1.0", 3))
    write_fasttext(home.models / "labels" / "emotion", manifest, model)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("home"))
    write_labels(made)
    return made


@pytest.fixture(scope="module")
def settings(model_settings: ModelSettings) -> ModelSettings:
    return replace(model_settings, prepend="emotion:1")


def train(
    home: Home, corpus: Path, measure: Measure, model: ModelSettings, stage: StageSettings
) -> StageResult:
    (result,) = run_recipe(
        Recipe(model=model, finetune=stage),
        home.runs / "run",
        {"generic": corpus},
        measure,
        home=home,
        console=Console(file=io.StringIO()),
    )
    return result


@pytest.fixture(scope="module")
def trained(
    home: Home, corpus: Path, measure: Measure, settings: ModelSettings, stage: StageSettings
) -> StageResult:
    return train(home, corpus, measure, settings, stage)


@pytest.fixture(scope="module")
def exported(home: Home, trained: StageResult, pairs: list[Pair]) -> Path:
    pytest.importorskip("onnxscript")
    folder = home.models / "tiny"
    export_onnx(
        SentenceTransformer(str(trained.model), device="cpu"),
        folder,
        name="tiny",
        origin=Origin("tiny", "CC0-1.0"),
        check_texts=[text for pair in pairs for text in (pair.context.last, pair.response)],
        quantise=False,
        prepender=read_prepender(trained.model),
    )
    return folder


def plain(folder: Path) -> TorchEncoder:
    """The same weights, no labels shown to them."""
    return TorchEncoder(SentenceTransformer(str(folder), device="cpu"))


def embeddings(model: SentenceTransformer) -> torch.Tensor:
    (core,) = cores(model)
    weight: torch.Tensor = core.get_input_embeddings().weight
    return weight


def test_a_label_is_one_token_that_means_its_word(home: Home, settings: ModelSettings) -> None:
    prepender = open_prepender(Prepend("emotion"), home)
    before = build_model(replace(settings, prepend=None), None, lambda: ())
    after = build_model(settings, None, lambda: (), prepender)
    rows, old = embeddings(after), embeddings(before)
    assert len(rows) == len(old) + 3
    assert torch.equal(rows[: len(old)], old)
    tokenizer = after.tokenizer
    for label in ("house", "kitten"):
        (token,) = tokenizer.encode(f"[emotion:{label}]", add_special_tokens=False)
        pieces = tokenizer.encode(label, add_special_tokens=False)
        torch.testing.assert_close(rows[token], old[pieces].mean(dim=0))
    unknown = rows[tokenizer.convert_tokens_to_ids("[emotion:qqq]")]
    again = build_model(settings, None, lambda: (), prepender)
    assert torch.equal(rows, embeddings(again))
    assert unknown.abs().sum() > 0


def test_too_few_positions_are_refused(home: Home, settings: ModelSettings) -> None:
    long = replace(settings, max_tokens=64)
    with pytest.raises(ConfigError, match="take 65 tokens, the model reads 64"):
        build_model(long, None, lambda: (), open_prepender(Prepend("emotion"), home))


def test_the_transformer_has_room_for_the_labels(home: Home) -> None:
    settings = ModelSettings(
        architecture="transformer", width=12, heads_per_layer=2, layers=1, max_tokens=10, prepend="emotion:3"
    )
    prepender = open_prepender(Prepend("emotion", 3), home)
    model = build_model(settings, None, lambda: ["we won the road", "we won the road"] * 2, prepender)
    encoder = TorchEncoder(model, max_tokens=10, prepender=prepender)
    vectors = encoder.encode_candidates(["road " * 40])
    assert vectors.shape == (1, 12)
    assert np.isfinite(vectors).all()


def test_training_saves_the_labeler_with_the_model(trained: StageResult, home: Home) -> None:
    assert trained.metrics["p_at_1"] > 10
    encoder = load_encoder(trained.model)
    assert read_prepender(trained.model).setting == open_prepender(Prepend("emotion"), home).setting
    text = "Tell me more about the house!"
    assert encoder.encode_candidates([text])[0] @ plain(trained.model).encode_candidates([text])[0] < 0.9999
    assert encoder.fingerprint != plain(trained.model).fingerprint


def test_the_exported_encoder_shows_the_same_labels(exported: Path, trained: StageResult) -> None:
    encoder, model = OnnxEncoder(exported), load_encoder(trained.model)
    card = EncoderCard.load(exported)
    assert card.prepend == read_prepender(trained.model).setting
    assert replace(card, prepend=None).fingerprint != encoder.fingerprint
    texts = ["Tell me more about the farm!", "Was the farm as you had hoped?", "Nothing to judge by."]
    np.testing.assert_allclose(encoder.encode_candidates(texts), model.encode_candidates(texts), atol=2e-3)
    contexts = [Context(("Hello there.", "There was a bear near our road.")), Context(("hoped",))]
    np.testing.assert_allclose(encoder.encode_contexts(contexts), model.encode_contexts(contexts), atol=2e-3)


def test_build_index_and_query_round_trip(exported: Path, trained: StageResult, home: Home) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(home.root), *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    run("build-index", "--pool", "ed", "--sample", "--encoder", "tiny", "--limit", "60")
    bundle = Bundle.open(home.indexes / "ed")
    assert bundle.manifest.encoder_fingerprint == OnnxEncoder(exported).fingerprint
    assert not any("[emotion:" in bundle.candidate(row).text for row in range(bundle.rows))
    found = json.loads(run("query", "There is no more road", "--pool", "ed", "--json", "-k", "3"))
    assert len(found["ranking"]) == 3
    best = found["ranking"][0]
    ranker = Ranker.open("ed", home=home)
    assert ranker.score("There is no more road", [best["text"]])[0] == pytest.approx(best["score"], abs=1e-3)
    for other in (plain(trained.model), load_encoder("hashing")):
        with pytest.raises(MismatchError, match="ranker build-index --pool ed"):
            Ranker.open("ed", home=home, encoder=other)


def test_a_run_does_not_go_on_with_other_labels(
    tmp_path: Path, corpus: Path, measure: Measure, settings: ModelSettings, stage: StageSettings
) -> None:
    home = Home(tmp_path / "home")
    write_labels(home)
    stage = replace(stage, epochs=1.0)
    train(home, corpus, measure, settings, stage)
    write_labels(home, ("road", "hoped", "more"))
    with pytest.raises(TrainingError, match="labels_sha256 differ"):
        train(home, corpus, measure, settings, stage)


def test_a_start_model_keeps_its_labels(
    trained: StageResult, settings: ModelSettings, tmp_path: Path
) -> None:
    """Whatever labelers the home has by then."""
    empty = Home(tmp_path)
    found = find_prepender(settings, trained.model, empty)
    assert isinstance(found, Prepender)
    assert found.setting == read_prepender(trained.model).setting
    model = build_model(settings, trained.model, lambda: (), found)
    assert len(model.tokenizer) == len(SentenceTransformer(str(trained.model), device="cpu").tokenizer)
    for wrong in (None, "emotion:3", "topic:1"):
        with pytest.raises(ConfigError, match="--prepend emotion:1"):
            find_prepender(replace(settings, prepend=wrong), trained.model, empty)
    assert find_prepender(replace(settings, prepend=None), None, empty) is None


def test_the_setting_in_a_recipe() -> None:
    assert load_recipe("mini", ["model.prepend='topic:5'"]).model.longest == 105
    assert load_recipe("mini").model.longest == 100
    with pytest.raises(ConfigError, match="kind:k"):
        load_recipe("mini", ["model.prepend='emotion'"])
