"""What goes on around the steps of a run: the best model, checkpoints, stopping, the live line."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from rich.console import Console
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ranker.errors import TrainingError
from ranker.storage import read_json, storage_errors, write_json
from ranker.training.folder import STATE, RunFolder, step_of
from ranker.types import Encoder

Measure = Callable[[Encoder], Mapping[str, float]]
"""Figures of an encoder on validation data; `p_at_1` (per cent) chooses the best model."""

_LINE_SECONDS = 30.0
_PLOT_SECONDS = 60.0


class BatchLoss(Protocol):
    """A loss that notes its value and P@1 in the last batch, and has a learned scale or none."""

    batch_loss: float
    batch_precision: float

    @property
    def learned_scale(self) -> torch.nn.Parameter | None: ...


@dataclass(frozen=True, slots=True)
class Objective:
    """The validation figure that chooses the model: its key among the figures, and what people call it."""

    key: str
    label: str
    larger_is_better: bool


class Pace(Protocol):
    """How often a run is saved, and when it is given up."""

    @property
    def save_minutes(self) -> float: ...
    @property
    def patience(self) -> int: ...


class Meter(Protocol):
    """Figures of the batches since the last row of metrics."""

    unit: str
    """What speed is counted in: pairs or tokens a second."""

    @property
    def learned_scale(self) -> torch.nn.Parameter | None: ...
    def step(self) -> int:
        """Take in the step that just ended; returns how many units it had."""
        ...

    def line(self) -> str:
        """The last step's figures for the live line."""
        ...

    def row(self) -> dict[str, float]:
        """Means of the steps since the last row; empty where there is none."""
        ...


class PairMeter:
    """Of a loss over pairs."""

    unit = "pairs"

    def __init__(self, loss: BatchLoss, batch_size: int) -> None:
        self._loss, self._batch_size = loss, batch_size
        self._precisions: list[float] = []

    @property
    def learned_scale(self) -> torch.nn.Parameter | None:
        return self._loss.learned_scale

    def step(self) -> int:
        self._precisions.append(self._loss.batch_precision)
        return self._batch_size

    def line(self) -> str:
        return f"loss {self._loss.batch_loss:.3f}  P@1 in batch {100 * self._loss.batch_precision:.1f}"

    def row(self) -> dict[str, float]:
        if not self._precisions:
            return {}
        mean = 100 * sum(self._precisions) / len(self._precisions)
        self._precisions.clear()
        return {"batch_p_at_1": round(mean, 2)}


@dataclass
class RunState:
    """What a checkpoint must hold beside the trainer's own state for an exact resume."""

    best: float = -1.0
    best_step: int = -1
    evaluations_since_best: int = 0
    seconds: float = 0.0
    scale: float | None = None
    finished: bool = False
    metrics: dict[str, float] = field(default_factory=dict)


class Watcher(TrainerCallback):
    """Follows a run; its state goes into every checkpoint."""

    def __init__(
        self,
        folder: RunFolder,
        meter: Meter,
        objective: Objective,
        pace: Pace,
        keep_best: Callable[[], None],
        console: Console,
    ) -> None:
        """`keep_best` writes the model as it is now where the result goes."""
        self.run = RunState()
        self.stopped = False
        """Ended because a signal asked for it, not because the run is done."""
        self._folder, self._meter, self._objective, self._pace = folder, meter, objective, pace
        self._keep_best = keep_best
        self._line = _Line(console, meter)
        self._stop_requested = False
        self._clock = self._saved = self._plotted = time.monotonic()

    def restore(self, checkpoint: Path) -> None:
        """Take up the state saved in a checkpoint."""
        self.run = RunState(**read_json(checkpoint / STATE))
        if self._meter.learned_scale is not None and self.run.scale is not None:
            with torch.no_grad():
                self._meter.learned_scale.fill_(self.run.scale)
        self._folder.rewind_metrics(step_of(checkpoint))

    def train(self, what: str, weights: int, make_trainer: Callable[[bool], Trainer]) -> int:
        """Run to the end, from the last checkpoint where there is one; returns the steps made.

        `what` is trained and has so many weights; `make_trainer` is told whether the run is new. Raises
        TrainingError where a signal stopped it.
        """
        checkpoint = self._folder.last_checkpoint()
        self._line.note(
            f"{what}, {weights / 1e6:.1f}M weights to train"
            + (f", from step {step_of(checkpoint)}" if checkpoint else "")
        )
        steps = 0
        if checkpoint is not None:
            self.restore(checkpoint)
            steps = step_of(checkpoint)
        if not self.run.finished:
            trainer = make_trainer(checkpoint is None)
            with self.signals(), storage_errors(self._folder.path):
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            steps = trainer.state.global_step
        if self.stopped:
            raise TrainingError(
                f"stopped at step {steps}, where a checkpoint is saved",
                fix="The same command goes on from there",
            )
        return steps

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for a checkpoint and a clean end; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if self._stop_requested:
                raise KeyboardInterrupt
            self._stop_requested = True
            self._line.note("stopping after this step; once more to stop at once")

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._clock = self._saved = time.monotonic()
        self._line.start()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._line.step_begins()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        self._line.step_ends(state.global_step, state.max_steps, self._meter.step())
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True
        if self._stop_requested:
            control.should_save = control.should_training_stop = self.stopped = True
        elif time.monotonic() - self._saved >= 60 * self._pace.save_minutes:
            control.should_save = True
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if not logs or "loss" not in logs or not (figures := self._meter.row()):
            return
        row = {
            "step": state.global_step,
            "loss": round(logs["loss"], 5),
            **figures,
            "learning_rate": logs.get("learning_rate", 0.0),
        }
        if self._meter.learned_scale is not None:
            row["scale"] = self._meter.learned_scale.item()
        self._folder.append_metrics(row)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **_: Any,
    ) -> TrainerControl:
        figures = {
            key.removeprefix("eval_"): value for key, value in (metrics or {}).items() if _is_figure(key)
        }
        if self._objective.key not in figures:
            return control
        self._folder.append_metrics(
            {"step": state.global_step, **{f"valid_{key}": value for key, value in figures.items()}}
        )
        self._judge(figures, state.global_step)
        if self._is_exhausted():
            control.should_training_stop = True
        control.should_save = state.global_step > 0
        if time.monotonic() - self._plotted >= _PLOT_SECONDS:
            self._folder.plot()
            self._plotted = time.monotonic()
        return control

    def _judge(self, figures: dict[str, float], step: int) -> None:
        """Keep the model where it is the best so far."""
        value, best = figures[self._objective.key], self.run.best
        if self.run.best_step < 0 or (value > best if self._objective.larger_is_better else value < best):
            self._keep_best()
            self.run.best, self.run.best_step = value, step
            self.run.metrics, self.run.evaluations_since_best = figures, 0
            place = "the best so far"
        else:
            self.run.evaluations_since_best += 1
            place = f"best: {self.run.best:.2f} at step {self.run.best_step}"
        self._line.note(f"step {step}: {self._objective.label} {value:.2f} on validation ({place})")

    def _is_exhausted(self) -> bool:
        return bool(self._pace.patience) and self.run.evaluations_since_best >= self._pace.patience

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._tick()
        self._saved = self._clock
        scale = self._meter.learned_scale
        self.run.scale = None if scale is None else scale.item()
        self.run.finished = state.global_step >= state.max_steps or self._is_exhausted()
        write_json(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / STATE, asdict(self.run))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._tick()
        self._line.stop()
        self.stopped = self.stopped and not self.run.finished

    def _tick(self) -> None:
        now = time.monotonic()
        self.run.seconds += now - self._clock
        self._clock = now


class _Line:
    """Progress on stderr: one live line on a terminal, a plain line now and then elsewhere."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console, self._meter = console, meter
        self._live = console.status("starting") if console.is_terminal else None
        self._last = float("-inf")
        self._began = 0.0
        self._steps, self._units, self._seconds = 0, 0, 0.0

    def start(self) -> None:
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def step_begins(self) -> None:
        self._began = time.monotonic()

    def step_ends(self, step: int, steps: int, units: int) -> None:
        """`units` is how many pairs or tokens the step had."""
        now = time.monotonic()
        self._steps += 1
        self._units += units
        self._seconds += now - self._began
        speed = self._units / self._seconds
        left = (steps - step) * self._seconds / self._steps
        text = (
            f"step {step}/{steps}  {self._meter.line()}  "
            f"{speed:.1f} {self._meter.unit}/s  {_duration(left)} left"
        )
        if self._live is not None:
            self._live.update(text)
        elif now - self._last >= _LINE_SECONDS:
            self._last = now
            self.note(text)


def _is_figure(key: str) -> bool:
    return key.startswith("eval_") and not key.startswith(("eval_runtime", "eval_samples", "eval_steps"))


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}m{int(seconds % 60):02d}"
