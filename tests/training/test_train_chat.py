"""`ranker train-generator chat` on a toy corpus and a tiny random model: losses, examples, runs."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import tiny_chat
import torch
from rich.console import Console
from safetensors.torch import load_file

from ranker.corpora import Pair
from ranker.errors import ConfigError, NotFoundError, TrainingError
from ranker.generation import load_generator
from ranker.generation.chat import ChatGenerator
from ranker.generation.chat_base import import_base
from ranker.generation.chat_model import ChatModel, load_lm
from ranker.generation.chat_prompt import ChatPrompt, PromptSettings
from ranker.home import Home
from ranker.storage import current, read_json
from ranker.training.chat import ChatSettings, ChatTask, train
from ranker.training.chat_examples import (
    Distractors,
    Example,
    Target,
    make_batch,
    make_examples,
    single_example,
)
from ranker.training.chat_losses import combined_loss, emotion_loss, language_modelling_loss, selection_loss
from ranker.training.data import read_pairs
from ranker.training.generators import GeneratorResult, Job
from ranker.types import Context, Label, Provenance

torch.set_num_threads(1)

FEELINGS = {
    "joyful": ("I feel so happy, we won the {0} game!", "That is wonderful news about the {0}."),
    "sad": ("My {0} died and I am very sad.", "I am so sorry about your {0}."),
    "afraid": ("The {0} in the house made me afraid.", "That sounds scary, where is the {0}?"),
}
NOUNS = ("dog", "cat", "bird", "horse", "fish", "bear", "mouse", "goat", "duck", "frog")
HEADER = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags"


def corpus_lines() -> list[str]:
    rows = [HEADER]
    for noun in NOUNS:
        for feeling, (said, replied) in FEELINGS.items():
            turns = (said.format(noun), replied.format(noun), "Thank you.", f"Always. {feeling} is fine.")
            for place, turn in enumerate(turns, 1):
                text = turn.replace(",", "_comma_")
                rows.append(f"hit:{noun}_{feeling},{place},{feeling},none,{(place + 1) % 2},{text},,")
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ed")
    for split in ("train", "valid"):
        (folder / f"{split}.csv").write_text("\n".join(corpus_lines()) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [line.split(",")[5] for line in corpus_lines()[1:]]
    return tiny_chat.write_base(tmp_path_factory.mktemp("base") / "tiny", width=64, lines=lines)


@pytest.fixture(scope="module")
def pairs(data: Path) -> list[Pair]:
    return read_pairs("ed", data, "train", listener_only=True)


@pytest.fixture(scope="module")
def prompt(base: Path) -> ChatPrompt:
    from ranker.generation.chat_prompt import load_tokenizer

    return ChatPrompt(load_tokenizer(base), PromptSettings(persona="You are a friend."))


def job(place: Path, data: Path, base: Path, *, model: dict[str, Any] | None = None, **training: Any) -> Job:
    return Job(
        tables={
            "model": {"base": str(base), "persona": "You are a friend.", **(model or {})},
            "training": {
                "corpora": ["ed"],
                "listener_only": True,
                "epochs": 2.0,
                "batch_size": 6,
                "learning_rate": 1e-2,
                "eval_steps": 4,
                "valid_rows": 12,
                "precision": "fp32",
                **training,
            },
        },
        source="toy.toml",
        data={"ed": data},
        folder=place / "run",
        out=place / "out",
        home=Home(place),
        console=Console(file=io.StringIO()),
    )


def adapter(result: GeneratorResult) -> dict[str, torch.Tensor]:
    folder = current(result.generator)
    assert folder is not None
    return load_file(folder / "adapter.safetensors")


class TestLosses:
    def test_language_modelling(self) -> None:
        scores = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
        found = language_modelling_loss(scores, torch.tensor([1, 0]))
        assert float(found) == pytest.approx((-math.log(0.75) - math.log(0.5)) / 2)

    def test_selection_wants_the_first_column(self) -> None:
        found = selection_loss(torch.tensor([[math.log(4), 0.0], [0.0, math.log(4)]]))
        assert float(found) == pytest.approx((-math.log(0.8) - math.log(0.2)) / 2)
        three = selection_loss(torch.zeros(5, 3))
        assert float(three) == pytest.approx(math.log(3))

    def test_emotion(self) -> None:
        found = emotion_loss(torch.zeros(2, 32), torch.tensor([3, 31]))
        assert float(found) == pytest.approx(math.log(32))

    def test_nothing_to_learn_from(self) -> None:
        scores = torch.zeros(0, 3, requires_grad=True)
        for found in (selection_loss(scores), emotion_loss(scores, torch.zeros(0, dtype=torch.long))):
            assert float(found.detach()) == 0.0
            found.backward()  # type: ignore[no-untyped-call] # torch's own

    def test_together(self) -> None:
        parts = [torch.tensor(value) for value in (2.0, 0.5, 3.0)]
        assert float(combined_loss(*parts, alpha=2.0)) == pytest.approx(7.5)


class TestExamples:
    def test_a_conversation_is_one_example(self, pairs: list[Pair], prompt: ChatPrompt) -> None:
        found = make_examples(pairs[:2], prompt, ("afraid", "joyful"), reply_tokens=40)
        assert [pair.response for pair in pairs[:2]] == [
            "That is wonderful news about the dog.",
            "Always. joyful is fine.",
        ]
        (example,) = found
        assert example.emotion == 1
        assert [prompt.text(example.ids[target.start : target.stop]) for target in example.targets] == [
            "Always. joyful is fine.",
            "That is wonderful news about the dog.",
        ]
        for target, pair in zip(example.targets, reversed(pairs[:2]), strict=True):
            assert list(example.ids[: target.start]) == prompt.prompt(pair.context)
            assert example.ids[target.stop - 1] == prompt.end

    def test_every_response_is_a_target_once(self, pairs: list[Pair], prompt: ChatPrompt) -> None:
        found = make_examples(pairs, prompt, (), reply_tokens=40)
        assert len(found) == len(pairs) // 2
        assert sum(len(example.targets) for example in found) == len(pairs)

    def test_what_does_not_fit_has_an_example_of_its_own(self, pairs: list[Pair], base: Path) -> None:
        from ranker.generation.chat_prompt import load_tokenizer

        tight = ChatPrompt(load_tokenizer(base), PromptSettings(context_tokens=14, persona="A friend."))
        found = make_examples(pairs[:2], tight, (), reply_tokens=3)
        assert [len(example.targets) for example in found] == [1, 1]
        assert [target.stop - target.start for example in found for target in example.targets] == [3, 3]

    def test_a_window_that_begins_later_is_put_together(self, prompt: ChatPrompt) -> None:
        turns = [f"turn {number}" for number in range(1, 7)]
        found = make_examples(
            [
                Pair(Context(tuple(turns[max(0, at - 4) : at])), turns[at], (), Provenance("c", "1", at + 1))
                for at in (1, 3, 5)
            ],
            prompt,
            (),
            reply_tokens=40,
        )
        (example,) = found
        assert len(example.targets) == 3
        assert list(example.ids[: example.targets[0].start]) == prompt.conversation(turns[:5])

    def test_the_dialogues_emotion_counts(self, prompt: ChatPrompt) -> None:
        labels = (Label("emotion", "sad"), Label("intent", "wishing"), Label("emotion", "joyful"))
        pair = Pair(Context(("hi",)), "ho", labels, Provenance("c", "1", 2))
        assert single_example(pair, prompt, ("sad", "joyful")).emotion == 1
        assert single_example(pair, prompt, ("afraid",)).emotion == -1

    def test_distractors_are_of_other_conversations(self) -> None:
        examples = [Example((1, 2, 10 + row // 2), (Target(2, 3),), f"c{row // 2}") for row in range(20)]
        found = Distractors(examples, count=2, share=1.0, seed=3)
        assert found.of(4) == found.of(4)
        for row in range(20):
            assert len(found.of(row)) == 2
            assert (10 + row // 2,) not in found.of(row)
        some = Distractors(examples, count=1, share=0.5, seed=3)
        assert 2 <= sum(bool(some.of(row)) for row in range(20)) <= 18
        with pytest.raises(TrainingError, match="two conversations"):
            Distractors(examples[:2], count=1, share=1.0, seed=0)
        assert (
            Distractors([examples[0], Example((5, 10), (Target(1, 2),), "x")], count=1, share=1.0, seed=0).of(
                0
            )
            == []
        )

    def test_a_batch_by_hand(self) -> None:
        first = Example((1, 2, 3, 4, 5), (Target(3, 5), Target(1, 2)), "a", emotion=7)
        second = Example((6, 7), (Target(1, 2),), "b")
        batch = make_batch([first, second], [[(8, 9)], []])
        assert batch["ids"].tolist() == [[1, 2, 3, 4, 5, 8, 9], [6, 7, 0, 0, 0, 0, 0]]
        assert batch["positions"].tolist()[0] == [0, 1, 2, 3, 4, 3, 4]
        assert batch["tokens_at"].tolist() == [[0, 2], [0, 3], [0, 0], [1, 0]]
        assert batch["tokens"].tolist() == [4, 5, 2, 7]
        assert batch["emotions_at"].tolist() == [[0, 2], [0, 0]]
        assert batch["emotions"].tolist() == [7, 7]
        assert batch["choices_at"].tolist() == [[[0, 4], [0, 6]]]


def test_a_branch_is_what_it_would_be_alone(base: Path) -> None:
    """The distractor after a shared context, against a row of its own."""
    model = ChatModel(load_lm(base, torch.float32), emotions=3)
    packed = make_batch([Example((5, 6, 7, 8, 9), (Target(3, 5),), "a")], [[(10, 11, 12)]])
    alone = make_batch([Example((5, 6, 7, 10, 11, 12), (Target(3, 6),), "a")], [[]])
    with torch.no_grad():
        together, single = model.hidden(packed)[0], model.hidden(alone)[0]
    assert torch.allclose(together[-3:], single[-3:], atol=1e-5)


def test_it_learns_all_three(tmp_path: Path, data: Path, base: Path) -> None:
    result = train(
        job(tmp_path, data, base, epochs=16.0, eval_steps=20, learning_rate=2e-2, model={"rank": 16})
    )
    assert (result.kind, result.steps, result.pairs) == ("chat", 80, 60)
    assert result.metrics["perplexity"] < 5, "hundreds before"
    assert result.metrics["word_perplexity"] > result.metrics["perplexity"]
    assert result.metrics["emotion_accuracy"] > 90
    assert result.metrics["selection_accuracy"] > 60
    home = Home(tmp_path)
    import_base(base, home)
    made = load_generator(tmp_path / "out", home)
    assert isinstance(made, ChatGenerator)
    held_out = read_pairs("ed", data, "valid", listener_only=True)[:12]
    total, tokens = (sum(column) for column in zip(*made.loglikelihood(held_out), strict=True))
    assert math.exp(-total / tokens) == pytest.approx(result.metrics["perplexity"], rel=0.05), "bf16 at most"
    contexts = [pair.context for pair in held_out]
    right = [
        labels[0].name == pair.labels[-1].name
        for labels, pair in zip(made.emotions(contexts), held_out, strict=True)
    ]
    assert 100 * sum(right) / 12 == pytest.approx(result.metrics["emotion_accuracy"], abs=9)
    card = read_json(tmp_path / "run" / "model" / "adapter.json")
    assert card["base"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert (card["scale"], card["shape"]["width"], len(card["emotions"])) == (1.0, 64, 32)


def test_an_interrupted_run_ends_with_the_same_weights(
    tmp_path: Path, data: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(job(tmp_path / "whole", data, base, model={"dropout": 0.1}))
    steps = 0
    real = ChatTask.loss

    def killed(self: ChatTask, batch: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise KeyboardInterrupt
        return real(self, batch)

    place = tmp_path / "cut"
    monkeypatch.setattr(ChatTask, "loss", killed)
    with pytest.raises(KeyboardInterrupt):
        train(job(place, data, base, model={"dropout": 0.1}, save_minutes=0.0))
    monkeypatch.setattr(ChatTask, "loss", real)
    resumed = train(job(place, data, base, model={"dropout": 0.1}, save_minutes=0.0))
    assert resumed.steps == whole.steps == 10
    one, other = adapter(whole), adapter(resumed)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_updated_and_what_is_frozen(data: Path, base: Path, pairs: list[Pair]) -> None:
    def names(**changes: Any) -> set[str]:
        task = ChatTask(ChatSettings(**changes), base, (), pairs[:8], pairs[:2], bf16=False, seed=0)
        return {name for name, weight in task.model.named_parameters() if weight.requires_grad}

    heads = {"selection.weight", "selection.bias", "emotion.weight", "emotion.bias"}
    everything = names()
    assert heads < everything
    assert len(everything) == 4 + 2 * 7 * 2
    upper = names(frozen_layers=1)
    assert len(upper) == 4 + 2 * 7
    assert not any(".layers.0." in name for name in upper)
    assert len(names(updated="attention")) == 4 + 2 * 4 * 2
    assert len(names(updated="query_value")) == 4 + 2 * 2 * 2
    with pytest.raises(TrainingError, match="no matrix"):
        names(frozen_layers=2)


def test_bad_settings(tmp_path: Path, data: Path, base: Path) -> None:
    for wrong in (
        {"rank": 0},
        {"dropout": 1.0},
        {"distractor_share": 1.5},
        {"frozen_layers": -1},
        {"alpha": 0},
    ):
        with pytest.raises(ConfigError):
            ChatSettings(**wrong)
    with pytest.raises(ConfigError, match="rnk"):
        train(job(tmp_path, data, base, model={"rnk": 3}))
    with pytest.raises(NotFoundError, match="has no config"):
        train(job(tmp_path, data, tmp_path))
    with pytest.raises(NotFoundError, match="ranker fetch generator:chat"):
        train(job(tmp_path, data, base, model={"base": ""}))
    train(job(tmp_path / "a", data, base, epochs=0.4))
    with pytest.raises(TrainingError, match=r"model\.rank"):
        train(job(tmp_path / "a", data, base, epochs=0.4, model={"rank": 4}))
