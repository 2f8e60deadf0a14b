"""What a generator brings to its training, and the trainer that runs it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from ranker.training.models import load_trainable, save_trainable

_WEIGHTS = "trainable.safetensors"
_SORTED_BATCHES = 50
"""So many batches are sorted by length together: enough for little padding, few enough to stay mixed."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Of a batch: `total` is what is minimised, `nll` the mean negative log probability of its target tokens,
    `tokens` their number; `parts` are further figures to keep."""

    total: Tensor
    nll: float
    tokens: int
    parts: Mapping[str, float] = field(default_factory=dict)


class Task(Protocol):
    """What a generator brings to its training."""

    @property
    def model(self) -> nn.Module:
        """Its weights that require a gradient are trained."""
        ...

    @property
    def lengths(self) -> Sequence[tuple[int, int]]:
        """Tokens of each example's context and reply: examples of equal length are computed together."""
        ...

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]: ...
    def loss(self, batch: Mapping[str, Tensor]) -> StepLoss: ...
    def validate(self) -> dict[str, float]:
        """Figures of the model as it is; the lowest `perplexity` chooses the model."""
        ...

    def save(self, folder: Path) -> None:
        """Write the generator's files, all that `ranker.generation` needs to load it, into a new folder."""
        ...


def batch_plan(
    lengths: Sequence[tuple[int, int]], batch_size: int, epochs: float, seed: int
) -> list[list[int]]:
    """The rows of every batch of a whole run, in order; the same for the same arguments.

    Each epoch is a new shuffle, in which rows of about equal length are put together: less padding. Rows that
    do not fill a batch wait for the next epoch.
    """
    each = len(lengths) // batch_size
    plan: list[list[int]] = []
    while len(plan) < epochs * each:
        rng = random.Random(f"{seed}:{len(plan)}")
        rows = rng.sample(range(len(lengths)), each * batch_size)
        batches: list[list[int]] = []
        for start in range(0, len(rows), _SORTED_BATCHES * batch_size):
            some = rows[start : start + _SORTED_BATCHES * batch_size]
            some.sort(key=lambda row: (lengths[row][0] // 8, lengths[row][1]))
            batches += [some[at : at + batch_size] for at in range(0, len(some), batch_size)]
        rng.shuffle(batches)
        plan += batches
    return plan[: math.ceil(epochs * each)]


class TokenMeter:
    """Of a loss over target tokens."""

    unit = "tokens"
    learned_scale: nn.Parameter | None = None

    def __init__(self) -> None:
        self._step: list[StepLoss] = []
        self._row: list[StepLoss] = []
        self._last = math.nan

    def add(self, loss: StepLoss) -> None:
        """Take in a part of the step at hand."""
        self._step.append(StepLoss(loss.total.detach(), loss.nll, loss.tokens, loss.parts))

    def step(self) -> int:
        self._last = _mean_nll(self._step)
        tokens = sum(part.tokens for part in self._step)
        self._row += self._step
        self._step = []
        return tokens

    def line(self) -> str:
        return f"loss {self._last:.3f}  perplexity {_exp(self._last):.1f}"

    def row(self) -> dict[str, float]:
        if not self._row:
            return {}
        figures = {"perplexity": round(_exp(_mean_nll(self._row)), 3)}
        for name in self._row[0].parts:
            values = [part.parts[name] for part in self._row]
            figures[name] = round(sum(values) / len(values), 5)
        self._row = []
        return figures


class TaskTrainer(Trainer):
    """Runs a task through its batches, given as rows, all epochs in a line; its checkpoints hold only what
    training changes."""

    def __init__(
        self,
        task: Task,
        batches: Sequence[list[int]],
        arguments: TrainingArguments,
        meter: TokenMeter,
        callback: TrainerCallback,
    ) -> None:
        nothing: Any = []  # the task evaluates; the trainer wants to see a dataset
        super().__init__(model=task.model, args=arguments, eval_dataset=nothing, callbacks=[callback])
        self.remove_callback(PrinterCallback)
        self._task, self._batches, self._meter = task, batches, meter

    def get_train_dataloader(self) -> DataLoader[Any]:
        rows: Any = range(len(self._task.lengths))  # a batch is made of its row numbers
        return DataLoader(rows, batch_sampler=self._batches, collate_fn=self._task.batch)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        found = self._task.loss(inputs)
        self._meter.add(found)
        return found.total

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        self._task.model.eval()
        with torch.inference_mode(), self.autocast_smart_context_manager():
            found = self._task.validate()
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in found.items()}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def floating_point_ops(self, inputs: dict[str, Tensor | Any]) -> int:
        return 0

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_trainable(self._task.model, folder / _WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
        load_trainable(self._task.model, Path(resume_from_checkpoint) / _WEIGHTS)


def _mean_nll(losses: Sequence[StepLoss]) -> float:
    return sum(loss.nll * loss.tokens for loss in losses) / max(1, sum(loss.tokens for loss in losses))


def _exp(value: float) -> float:
    return math.exp(min(value, 50.0))
