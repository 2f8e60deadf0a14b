"""Training the generator `chat`: low-rank updates of a pretrained chat model, with CAiRE's three objectives.

What makes it fast on a processor: the base is frozen and in bf16; the lower layers may be left as they are,
so that nothing is computed backwards through them; a conversation is computed once for all of its replies
and the distractor; the scores of the next token, over a large vocabulary, are computed for replies only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ranker.corpora import Pair
from ranker.errors import ConfigError, TrainingError
from ranker.generation.chat import KIND
from ranker.generation.chat_adapter import LORA_A, LORA_B, WEIGHTS, AdapterCard
from ranker.generation.chat_base import base_card, checked_base, open_base, shape_of, weight_hashes
from ranker.generation.chat_model import ChatModel, load_lm
from ranker.generation.chat_prompt import PERSONA, ChatPrompt, PromptSettings, load_tokenizer
from ranker.home import Home
from ranker.labels.taxonomy import EMOTIONS
from ranker.storage import write_bytes
from ranker.training.chat_examples import Distractors, Example, make_batch, make_examples, single_example
from ranker.training.chat_losses import (
    combined_loss,
    emotion_loss,
    language_modelling_loss,
    selection_loss,
)
from ranker.training.generators import (
    GeneratorResult,
    Job,
    StepLoss,
    TrainingSettings,
    run_training,
    training_pairs,
    validation_pairs,
)
from ranker.training.run import use_bf16

_BATCH = 16
"""Pairs of a batch of validation."""
_ADAPTER = "default"


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The table `[model]`. A batch of `[training]` counts conversations here."""

    base: str = ""
    """A transformers folder with safetensors; empty: the base in the home (ranker fetch generator:chat)."""
    base_name: str = ""
    """The hub id of the base, for the adapter's card; empty: the default one's."""
    rank: int = 8
    """Of the low-rank updates."""
    lora_alpha: float = 16.0
    """An update counts `lora_alpha` / rank times."""
    dropout: float = 0.0
    """Of the inputs of the updates."""
    updated: Literal["all", "attention", "query_value"] = "all"
    """Which matrices of a layer are updated."""
    frozen_layers: int = 0
    """The lowest, which are left as they are."""
    alpha: float = 1.0
    """Weight of language modelling beside the two other objectives."""
    distractors: int = 1
    """Wrong replies beside a true one."""
    distractor_share: float = 1.0
    """Of the examples that have distractors."""
    turns: int = 4
    context_tokens: int = 96
    reply_tokens: int = 40
    """The first of a reply, its end among them."""
    persona: str = PERSONA

    def __post_init__(self) -> None:
        for name in ("rank", "lora_alpha", "alpha", "reply_tokens"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        if not (0 <= self.dropout < 1 and 0 <= self.distractor_share <= 1):
            raise ConfigError("dropout must be at least 0 and below 1, distractor_share within 0..1")
        if self.frozen_layers < 0 or self.distractors < 0:
            raise ConfigError("frozen_layers and distractors must be 0 or more")

    @property
    def prompt(self) -> PromptSettings:
        return PromptSettings(self.turns, self.context_tokens, self.persona)


def train(job: Job) -> GeneratorResult:
    """The generator that the tables `[model]` and `[training]` describe. See `run_training`.

    Raises NotFoundError where there is no base, MismatchError where it cannot be used.
    """
    job.check_tables("model", "training")
    model = job.table(ChatSettings, "model")
    training = job.table(TrainingSettings, "training")
    base = _find_base(model, job.home)
    hashes = weight_hashes(base)
    pairs = training_pairs(training, job.data)
    held_out = validation_pairs(training, job.data)
    depends_on = {**asdict(model), "base": list(hashes)}
    return run_training(
        job,
        KIND,
        training,
        depends_on,
        pairs,
        lambda: ChatTask(
            model, base, hashes, pairs, held_out, bf16=use_bf16(training.precision), seed=training.seed
        ),
    )


class ChatTask:
    """A `Task`: the base with its updates and heads, and the pairs as examples."""

    def __init__(
        self,
        settings: ChatSettings,
        base: Path,
        base_sha256: tuple[str, ...],
        pairs: Sequence[Pair],
        held_out: Sequence[Pair],
        *,
        bf16: bool,
        seed: int,
    ) -> None:
        self._settings = settings
        prompt = ChatPrompt(load_tokenizer(base), settings.prompt)
        lm = load_lm(base, torch.bfloat16 if bf16 else torch.float32)
        self._modules = _add_updates(lm, settings)
        self.model = ChatModel(lm, emotions=len(EMOTIONS))
        self._card = AdapterCard(
            base=settings.base_name or base_card().hub_id,
            shape=shape_of(base),
            base_sha256=base_sha256,
            scale=settings.lora_alpha / settings.rank,
            prompt=settings.prompt,
            emotions=EMOTIONS,
        )
        self._examples = make_examples(pairs, prompt, EMOTIONS, reply_tokens=settings.reply_tokens)
        self._distractors = Distractors(
            self._examples, count=settings.distractors, share=settings.distractor_share, seed=seed
        )
        self._held_out = sorted(
            ((single_example(pair, prompt, EMOTIONS), len(pair.response.split())) for pair in held_out),
            key=lambda row: len(row[0].ids),
        )

    @property
    def lengths(self) -> list[tuple[int, int]]:
        return [
            (len(example.ids) + sum(map(len, self._distractors.of(row))), len(example.targets))
            for row, example in enumerate(self._examples)
        ]

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        return make_batch([self._examples[row] for row in rows], [self._distractors.of(row) for row in rows])

    def loss(self, batch: Mapping[str, Tensor]) -> StepLoss:
        hidden = self.model.hidden(batch)
        modelling = language_modelling_loss(
            self.model.scores(_at(hidden, batch["tokens_at"])), batch["tokens"]
        )
        selection = selection_loss(self.model.selection_scores(_at(hidden, batch["choices_at"])))
        emotion = emotion_loss(
            self.model.emotion_scores(_at(hidden, batch["emotions_at"])), batch["emotions"]
        )
        total = combined_loss(modelling, selection, emotion, alpha=self._settings.alpha)
        parts = {"selection": float(selection.detach()), "emotion": float(emotion.detach())}
        return StepLoss(total, float(modelling.detach()), len(batch["tokens"]), parts)

    def validate(self) -> dict[str, float]:
        """Perplexity per token and per word, and how often each head is right, per cent."""
        examples = [example for example, _ in self._held_out]
        several = len({example.conversation for example in examples}) > 1
        distractors = Distractors(examples, count=1, share=1.0 if several else 0.0, seed=0)
        nll, tokens = 0.0, 0
        right, asked = {"emotion": 0, "selection": 0}, {"emotion": 0, "selection": 0}
        for start in range(0, len(examples), _BATCH):
            some: list[Example] = examples[start : start + _BATCH]
            batch = make_batch(some, [distractors.of(start + row) for row in range(len(some))])
            hidden = self.model.hidden(batch)
            scores = self.model.scores(_at(hidden, batch["tokens_at"]))
            nll += float(nn.functional.cross_entropy(scores, batch["tokens"], reduction="sum"))
            tokens += len(batch["tokens"])
            emotions = self.model.emotion_scores(_at(hidden, batch["emotions_at"]))
            right["emotion"] += int((emotions.argmax(dim=-1) == batch["emotions"]).sum())
            asked["emotion"] += len(emotions)
            choices = self.model.selection_scores(_at(hidden, batch["choices_at"]))
            right["selection"] += int((choices[:, :1] > choices[:, 1:]).all(dim=1).sum())
            asked["selection"] += len(choices) if choices.shape[1] > 1 else 0
        words = sum(count for _, count in self._held_out)
        return {
            "perplexity": math.exp(min(nll / tokens, 50.0)),
            "word_perplexity": math.exp(min(nll / words, 50.0)),
            "loss": nll / tokens,
        } | {f"{head}_accuracy": 100 * right[head] / asked[head] for head in right if asked[head]}

    def save(self, folder: Path) -> None:
        tensors: dict[str, Tensor] = {}
        for name in self._modules:
            layer: Any = self.model.lm.get_submodule(name)
            tensors[name + LORA_A] = layer.lora_A[_ADAPTER].weight
            tensors[name + LORA_B] = layer.lora_B[_ADAPTER].weight
        for head in ("selection", "emotion"):
            for part, value in getattr(self.model, head).named_parameters():
                tensors[f"{head}.{part}"] = value
        halves = {name: value.detach().half().contiguous() for name, value in tensors.items()}
        self._card.save(folder)
        write_bytes(folder / WEIGHTS, save(halves))  # the library's own writer lets nobody else read the file


def _find_base(settings: ChatSettings, home: Home) -> Path:
    if not settings.base:
        return checked_base(open_base(home))
    folder = Path(settings.base).expanduser()
    shape_of(folder)
    return folder


def _add_updates(lm: Any, settings: ChatSettings) -> list[str]:
    """Put low-rank updates beside matrices of the model, in float32; returns the names of these.

    Raises TrainingError where the model has no such matrices.
    """
    from peft import LoraConfig

    names = [name for name, module in lm.named_modules() if _is_updated(name, module, settings)]
    if not names:
        raise TrainingError(
            f"no matrix of the base model is left to update ({settings.updated}, "
            f"{settings.frozen_layers} frozen layers)"
        )
    lm.add_adapter(
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.dropout,
            target_modules=names,
        ),
        adapter_name=_ADAPTER,
    )
    for weight in lm.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return names


_PARTS = {
    "all": re.compile(r""),
    "attention": re.compile(r"attn|attention"),
    "query_value": re.compile(r"\.(q_proj|v_proj|query|value)$"),
}


def _is_updated(name: str, module: nn.Module, settings: ChatSettings) -> bool:
    layer = re.search(r"\.(\d+)\.", name)
    if layer is None or not isinstance(module, nn.Linear):
        return False
    return int(layer[1]) >= settings.frozen_layers and bool(_PARTS[settings.updated].search(name))


def _at(hidden: Tensor, places: Tensor) -> Tensor:
    """The hidden states at places (..., 2) of (row, token)."""
    return hidden[places[..., 0], places[..., 1]]
