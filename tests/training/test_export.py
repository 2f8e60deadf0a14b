"""Export of tiny random models: the exported encoder gives the model's vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ranker.encoders import OnnxEncoder, load_encoder
from ranker.encoders.card import EncoderCard, Origin
from ranker.errors import ConfigError, TrainingError
from ranker.types import Context, Encoder

pytest.importorskip("sentence_transformers")
pytest.importorskip("onnxscript")

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

DIM = 32
WORDS = [f"w{number}" for number in range(2100)]
ORIGIN = Origin(base_model="tiny", licence="CC0-1.0")
TEXTS = [" ".join(WORDS[(7 * row + 3 * place) % 2100] for place in range(1 + row % 40)) for row in range(60)]
CONTEXTS = [Context(tuple(TEXTS[row : row + 1 + row % 5])) for row in range(40)]


def transformer(folder: Path, seed: int) -> Transformer:
    """A random two-layer BERT of made-up words; its embedding table is large enough to become int8."""
    import torch
    from sentence_transformers.base.modules import Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special})
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(folder)
    module: Transformer = Transformer(str(folder))
    return module


@pytest.fixture(scope="module")
def shared_model(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    tower = transformer(tmp_path_factory.mktemp("bert"), seed=0)
    return SentenceTransformer(modules=[tower, Pooling(DIM)], device="cpu")


@pytest.fixture(scope="module")
def exported(shared_model: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ranker.training.export import export_onnx

    folder = tmp_path_factory.mktemp("out") / "encoder"
    report = export_onnx(shared_model, folder, name="tiny", origin=ORIGIN, check_texts=TEXTS)
    assert report.mean_cosine >= 0.99
    assert report.min_cosine <= report.mean_cosine
    assert report.size == sum(file.stat().st_size for file in folder.iterdir() if file.name != "encoder.json")
    return folder


def assert_near(encoder: Encoder, model: SentenceTransformer, *, least: float) -> None:
    """Both sides of `encoder` agree with torch on every text."""
    from ranker.encoders.torch import TorchEncoder

    torch_encoder = TorchEncoder(model)
    candidates = (encoder.encode_candidates(TEXTS) * torch_encoder.encode_candidates(TEXTS)).sum(axis=1)
    contexts = (encoder.encode_contexts(CONTEXTS) * torch_encoder.encode_contexts(CONTEXTS)).sum(axis=1)
    assert min(candidates.min(), contexts.min()) >= least


def test_int8_is_near_torch(exported: Path, shared_model: SentenceTransformer) -> None:
    encoder = load_encoder(exported)
    assert isinstance(encoder, OnnxEncoder)
    assert sorted(file.name for file in exported.iterdir()) == [
        "encoder.json",
        "model.onnx",
        "tokenizer.json",
    ]
    assert_near(encoder, shared_model, least=0.98)


def test_the_card_tells_what_was_exported(exported: Path) -> None:
    card = EncoderCard.load(exported)
    assert (card.name, card.dim, card.pooling, card.batch_size) == ("tiny", DIM, "mean", 1)
    assert card.context_graph == card.candidate_graph == "model.onnx"
    assert card.origin.licence == "CC0-1.0"
    assert [figure.name for figure in card.origin.figures] == [
        "mean cosine to the float32 model",
        "lowest cosine to the float32 model",
    ]


def test_tables_and_weights_are_int8(exported: Path) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(str(exported / "model.onnx")).graph
    matrices = [one for one in graph.initializer if len(one.dims) == 2 and min(one.dims) >= DIM]
    floats = [list(one.dims) for one in matrices if one.data_type == onnx.TensorProto.FLOAT]
    assert len(matrices) == 2 + 2 * 6  # two tables; two layers of q, k, v, output, up, down
    assert floats == [[128, DIM]]  # positions: too small a table to gain from int8


def test_torch_agrees_with_sentence_transformers(shared_model: SentenceTransformer) -> None:
    """The layout of a single turn is that of the model's own tokenizer."""
    from ranker.encoders.torch import TorchEncoder

    ours = TorchEncoder(shared_model).encode_candidates(TEXTS)
    theirs = shared_model.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_float32_is_exact_and_batched(shared_model: SentenceTransformer, tmp_path: Path) -> None:
    from ranker.training.export import export_onnx

    export_onnx(shared_model, tmp_path / "e", name="t", origin=ORIGIN, check_texts=TEXTS, quantise=False)
    encoder = OnnxEncoder(tmp_path / "e")
    assert encoder.card.batch_size > 1
    assert_near(encoder, shared_model, least=0.99999)


def test_a_saved_model_loads_as_a_torch_encoder(shared_model: SentenceTransformer, tmp_path: Path) -> None:
    from ranker.encoders.torch import TorchEncoder

    shared_model.save_pretrained(str(tmp_path / "model"))
    encoder = load_encoder(tmp_path / "model")
    assert isinstance(encoder, TorchEncoder)
    assert encoder.fingerprint == load_encoder(tmp_path / "model").fingerprint
    assert_near(encoder, shared_model, least=0.99999)


def test_two_towers_give_two_graphs(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Router
    from sentence_transformers.sentence_transformer.modules import Pooling

    from ranker.training.export import export_onnx

    router = Router.for_query_document(
        query_modules=[transformer(tmp_path / "q", seed=1), Pooling(DIM, pooling_mode="cls")],
        document_modules=[transformer(tmp_path / "d", seed=2), Pooling(DIM, pooling_mode="cls")],
    )
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    export_onnx(model, tmp_path / "e", name="two", origin=ORIGIN, check_texts=TEXTS)
    encoder = OnnxEncoder(tmp_path / "e")
    assert (encoder.card.context_graph, encoder.card.candidate_graph) == ("context.onnx", "candidate.onnx")
    assert encoder.card.pooling == "cls"
    assert_near(encoder, model, least=0.98)
    one_turn = [Context((text,)) for text in TEXTS]
    assert (encoder.encode_contexts(one_turn) * encoder.encode_candidates(TEXTS)).sum(axis=1).mean() < 0.9


def test_towers_must_share_their_tokenizer(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Pooling

    from ranker.encoders.torch import layout_of

    query, document = transformer(tmp_path / "q", seed=1), transformer(tmp_path / "d", seed=2)
    assert document.tokenizer is not None
    document.tokenizer.add_tokens(["another"])
    router = Router.for_query_document(
        query_modules=[query, Pooling(DIM)], document_modules=[document, Pooling(DIM)]
    )
    with pytest.raises(ConfigError, match="tokenizers"):
        layout_of(SentenceTransformer(modules=[router], device="cpu"))


def test_an_adapter_is_merged_and_the_model_left_as_it_was(tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from ranker.training.export import export_onnx

    model = SentenceTransformer(modules=[transformer(tmp_path / "b", seed=3), Pooling(DIM)], device="cpu")
    before = model.encode(TEXTS)
    model.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"]))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.5)
    names = sorted(model.state_dict())
    assert not np.allclose(model.encode(TEXTS), before, atol=1e-3)
    export_onnx(model, tmp_path / "e", name="lora", origin=ORIGIN, check_texts=TEXTS, quantise=False)
    assert sorted(model.state_dict()) == names
    assert_near(OnnxEncoder(tmp_path / "e"), model, least=0.99999)


def test_a_metric_that_falls_is_refused(shared_model: SentenceTransformer, tmp_path: Path) -> None:
    from ranker.training.export import export_onnx

    def falling(encoder: Encoder) -> float:
        return 50.0 - 0.6 * isinstance(encoder, OnnxEncoder)

    with pytest.raises(TrainingError, match=r"from 50\.00 to 49\.40"):
        export_onnx(shared_model, tmp_path / "e", name="t", origin=ORIGIN, check_texts=TEXTS, metric=falling)
    assert list(tmp_path.iterdir()) == []


def test_a_far_encoder_is_refused_and_the_old_one_stays(
    exported: Path, shared_model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ranker.training import export

    before = (exported / "encoder.json").read_bytes()
    monkeypatch.setattr(export, "MIN_MEAN_COSINE", 1.1)
    with pytest.raises(TrainingError, match="too far"):
        export.export_onnx(shared_model, exported, name="t", origin=ORIGIN, check_texts=TEXTS)
    assert (exported / "encoder.json").read_bytes() == before


def test_another_folder_s_files_are_not_touched(shared_model: SentenceTransformer, tmp_path: Path) -> None:
    from ranker.training.export import export_onnx

    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(TrainingError, match="not an encoder"):
        export_onnx(shared_model, tmp_path, name="t", origin=ORIGIN, check_texts=TEXTS)
    assert (tmp_path / "diary.txt").read_text() == "mine"


def test_the_command_replaces_an_older_encoder(
    shared_model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ranker.training.export import main

    shared_model.save_pretrained(str(tmp_path / "model"))
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    command = [
        str(tmp_path / "model"),
        str(tmp_path / "e"),
        "--licence",
        "CC0-1.0",
        "--texts",
        str(tmp_path / "texts"),
    ]
    for name in ("first", "second"):
        assert main([*command, "--name", name]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["mean_cosine"] >= 0.99
        assert EncoderCard.load(tmp_path / "e").name == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "model", "texts"]
    (tmp_path / "texts").write_text("one\n")
    assert main([*command, "--name", "third"]) == 1
    assert "two texts" in capsys.readouterr().err


def test_smoothing_evens_out_the_ranges() -> None:
    """By hand: ranges 16 and 1, weights of range 1; factors 16^0.8 : 1 about a geometric mean of 1."""
    from ranker.training.quantise import smoothing_factors

    weight = np.array([[1.0, -0.5], [0.25, 1.0]], dtype=np.float32)
    factors = smoothing_factors(np.array([16.0, 1.0], dtype=np.float32), [weight])
    np.testing.assert_allclose(factors, [16**0.4, 16**-0.4], rtol=1e-5)
