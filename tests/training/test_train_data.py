"""From corpora to batches: which pairs, which ids, who may meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ranker.corpora import Pair
from ranker.encoders import HashingEncoder
from ranker.encoders.torch import layout_of
from ranker.errors import ConfigError, TrainingError
from ranker.training.batches import DistinctResponses, PairCollator
from ranker.training.data import pair_dataset, pairs_hash, parse_data, response_key, stage_pairs
from ranker.training.models import build_model
from ranker.training.settings import ModelSettings, StageSettings
from ranker.training.vectors import mined_negatives, teacher_vectors
from ranker.types import Context, Progress, Provenance, Vectors


def pair(context: str, response: str) -> Pair:
    return Pair(Context((context,)), response, (), Provenance("toy", "1", 2))


def nothing(done: int, of: int) -> None:
    pass


def test_data_flags() -> None:
    assert parse_data(["ed=a/b", "reddit=c=d"]) == {"ed": Path("a/b"), "reddit": Path("c=d")}
    with pytest.raises(ConfigError, match="corpus=path"):
        parse_data(["ed"])


def test_response_key() -> None:
    assert response_key("That's  great!") == response_key("thats GREAT")
    assert response_key("great") != response_key("grate")
    assert response_key("!!!") != response_key("??")


def test_stage_pairs_are_filtered_and_drawn(tmp_path: Path, corpus: Path, stage: StageSettings) -> None:
    data = {"generic": corpus}
    everything = stage_pairs(stage, data)
    assert len(everything) == 108
    short = stage_pairs(replace(stage, max_words=6), data)
    assert {len(pair.response.split()) for pair in short} == {6}
    drawn = stage_pairs(replace(stage, pairs=50), data)
    assert len(drawn) == 50
    assert drawn == stage_pairs(replace(stage, pairs=50), data)
    assert drawn != stage_pairs(replace(stage, pairs=50, seed=1), data)
    assert pairs_hash(drawn) != pairs_hash(drawn[::-1])
    (tmp_path / "train.jsonl").write_text('{"context": ["hm"], "response": "what a load of bullshit"}\n')
    rude = replace(stage, batch_size=2)
    with pytest.raises(TrainingError, match="1 pairs"):
        stage_pairs(rude, {"generic": tmp_path})
    with pytest.raises(TrainingError, match="0 pairs"):
        stage_pairs(replace(rude, profane="drop"), {"generic": tmp_path})


def test_ids_are_those_of_the_layout(pairs: list[Pair], model_settings: ModelSettings) -> None:
    model = build_model(model_settings, None, lambda: ())
    layout = layout_of(model, max_tokens=10)
    dataset = pair_dataset(pairs, layout, [["One.", "Two."]] * len(pairs))
    assert dataset.column_names == [
        *("context", "response", "response_key", "row"),
        *("negative_0", "negative_0_key", "negative_1", "negative_1_key"),
    ]
    row = dataset[40]
    assert row["context"] == layout.context(pairs[40].context)
    assert len(row["context"]) <= 10
    assert row["negative_1"] == layout.candidate("Two.")
    batch = PairCollator(pad_id=0)([dataset[0], dataset[40]])
    assert batch["label"].tolist() == [0, 40]
    assert (batch["context_task"], batch["response_task"]) == ("query", "document")
    assert batch["negative_1_task"] == "document"
    assert batch["context_input_ids"].shape == batch["context_attention_mask"].shape
    assert batch["context_input_ids"][batch["context_attention_mask"] == 0].eq(0).all()


def test_no_equal_responses_meet() -> None:
    from datasets import Dataset

    generator = np.random.default_rng(0)
    keys = generator.integers(0, 30, 200).tolist()
    dataset = Dataset.from_dict(
        {"response_key": keys, "negative_0_key": [key + 1 for key in keys], "row": list(range(200))}
    )
    sampler = DistinctResponses(dataset, 10, drop_last=True, generator=torch.Generator(), seed=4)
    batches = list(sampler)
    assert len(batches) == 20
    for batch in batches:
        seen = [key for row in batch for key in (keys[row], keys[row] + 1)]
        assert len(seen) == len(set(seen)) == 20
    assert batches == list(sampler)
    sampler.set_epoch(1)
    assert batches != list(sampler)


class Plane:
    """An encoder of two dimensions whose vectors are given as angles in degrees."""

    dim = 2
    fingerprint = "plane"
    calibration = None

    def __init__(self, angles: Mapping[str, float]) -> None:
        self.angles = angles

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        return self.encode_candidates([context.last for context in contexts])

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        radians = np.radians([self.angles[text] for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_mined_negatives_by_hand(tmp_path: Path) -> None:
    # Cosines to the context "c" at 0 degrees: gold 0.94, nearer 0.98, just under 0.91, far 0.5, opposite -1.
    # With a margin of 0.05 a negative must be at most 0.95 * 0.94 = 0.89.
    angles = {"c": 0, "Gold!": 20, "gold": 20, "nearer": 10, "just under": 25, "far": 60, "opposite": 180}
    rows = [pair("c", text) for text in ("Gold!", "nearer", "just under", "far", "opposite", "gold")]

    def mine(count: int, margin: float, seed: int = 0) -> list[list[str]]:
        return mined_negatives(
            Plane(angles), rows, "0" * 64, tmp_path, nothing, count=count, margin=margin, seed=seed
        )

    assert mine(2, 0.05)[0] == ["far", "opposite"]
    assert mine(2, 0.0)[0] == ["just under", "far"]
    assert mine(1, 0.05)[1] == ["just under"], "of the nearer response: 0.95 * 0.98 = 0.94 lets 0.91 pass"
    filled = mine(4, 0.05)
    assert set(filled[0]) == {"far", "opposite", "nearer", "just under"}, "filled up, but never its own text"
    assert mine(4, 0.05) == filled
    with pytest.raises(TrainingError, match="too few"):
        mine(5, 0.05)


def test_teacher_scores_are_the_mean_and_are_kept(tmp_path: Path, pairs: list[Pair]) -> None:
    teachers = [HashingEncoder(dim=64), HashingEncoder(dim=128)]
    contexts, responses = teacher_vectors(teachers, pairs, "a" * 64, tmp_path, nothing)
    assert contexts.shape == responses.shape == (len(pairs), 192)
    expected = np.mean(
        [
            encoder.encode_contexts([pair.context for pair in pairs])
            @ encoder.encode_candidates([pair.response for pair in pairs]).T
            for encoder in teachers
        ],
        axis=0,
    )
    found = contexts.astype(np.float32) @ responses.astype(np.float32).T
    np.testing.assert_allclose(found, expected, atol=2e-3)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    before = {path: path.stat().st_mtime_ns for path in files}
    again = teacher_vectors(teachers, pairs, "a" * 64, tmp_path, nothing)
    np.testing.assert_array_equal(again[0], contexts)
    assert {path: path.stat().st_mtime_ns for path in files} == before
    teacher_vectors(teachers, pairs, "b" * 64, tmp_path, nothing)
    assert len(list(tmp_path.iterdir())) == 8
