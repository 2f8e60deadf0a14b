"""What the training of every generator shares: its settings, its pairs, a run that resumes, and the result.

A generator's training module, such as `ranker.training.seq2seq`, offers

    train(job: Job) -> GeneratorResult

which reads its own tables of the preset and calls `run_training` with a `Task`. The run's folder holds

    settings.json   what it was started with; another job in the same folder is refused
    metrics.jsonl   loss and validation figures by step
    plot.png        of these
    checkpoints/    the last two, until the run is done
    model/          the generator's files with the best validation perplexity so far
    result.json     written last: the run is done
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
import transformers
from rich.console import Console
from transformers import TrainingArguments

from ranker.config import from_table
from ranker.corpora import Pair
from ranker.errors import ConfigError, NotFoundError
from ranker.generation.folder import Figure, Manifest, write_generator
from ranker.home import Home
from ranker.storage import exclusive, read_json, write_json
from ranker.training.data import has_listener, pairs_hash, read_pairs, stage_pairs
from ranker.training.folder import RunFolder, replace_folder
from ranker.training.models import trainable
from ranker.training.run import quiet, use_bf16
from ranker.training.settings import Precision
from ranker.training.tasks import StepLoss, Task, TaskTrainer, TokenMeter, batch_plan
from ranker.training.watch import Objective, Watcher

__all__ = [
    "GeneratorResult",
    "Job",
    "StepLoss",
    "Task",
    "TrainingSettings",
    "run_training",
    "training_pairs",
    "validation_pairs",
]

T = TypeVar("T")

_LOG_STEPS = 10
_OBJECTIVE = Objective("perplexity", "perplexity", larger_is_better=False)
_MAY_CHANGE = ("training.save_minutes",)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The table `[training]` of a generator's preset."""

    corpora: tuple[str, ...] = ("ed",)
    listener_only: bool = False
    """Only the listener's replies as targets, not both speakers'."""
    pairs: int = 0
    """Train on this many pairs, drawn at random; 0: all."""
    min_words: int = 1
    max_words: int = 60
    """Pairs whose response is shorter or longer are left out."""
    profane: Literal["keep", "drop"] = "keep"
    """Whether pairs with a profane response are trained on."""
    valid: str = "ed"
    """The corpus whose validation split chooses the model: the listener's replies, where there is one."""
    valid_rows: int = 1000
    """The first so many pairs of it; 0: all."""
    epochs: float = 1.0
    batch_size: int = 32
    """Pairs between two updates of the weights."""
    accumulate: int = 1
    """Parts that a batch is computed in, where it does not fit into memory whole."""
    learning_rate: float = 1e-3
    warmup: float = 0.05
    """Share of the steps."""
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = 0.01
    gradient_norm: float = 1.0
    """Gradients are shortened to this."""
    eval_steps: int = 200
    patience: int = 0
    """Stop after so many evaluations without a better one; 0: never."""
    save_minutes: float = 3.0
    """A restart loses at most this much."""
    precision: Precision = "auto"
    licence: str = ""
    """Of the result, which the corpora decide."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "learning_rate", "gradient_norm", "eval_steps"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.batch_size % self.accumulate:
            raise ConfigError(f"batch_size {self.batch_size} is not a multiple of accumulate")


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for: a preset's tables with every override applied, the corpora, and where things go."""

    tables: Mapping[str, Mapping[str, Any]]
    source: str
    """Where the tables come from, for messages."""
    data: Mapping[str, Path]
    folder: Path
    """Of the run."""
    out: Path
    """Where the finished generator is installed."""
    home: Home
    fresh: bool = False
    """Forget the run so far."""
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def table(self, cls: type[T], name: str) -> T:
        """The settings of one table. Raises ConfigError for an unknown key or a wrong value."""
        return from_table(cls, self.tables.get(name, {}), source=f"[{name}] of {self.source}")

    def check_tables(self, *known: str) -> None:
        """Raises ConfigError where the preset has another table."""
        for name in self.tables:
            if name not in known:
                raise ConfigError(
                    f"unknown table [{name}] in {self.source}", fix=f"Known: {', '.join(known)}"
                )


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """A finished run. `metrics` are the best validation figures; `seconds` over all its sittings."""

    kind: str
    generator: Path
    """Where it is installed."""
    steps: int
    best_step: int
    pairs: int
    trainable: int
    seconds: float
    metrics: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "generator": str(self.generator)}


@dataclass(frozen=True, slots=True)
class GeneratorRunFolder(RunFolder):
    panels: ClassVar[tuple[tuple[str, ...], ...]] = (("loss", "valid_loss"), ("valid_perplexity",))


def training_pairs(settings: TrainingSettings, data: Mapping[str, Path]) -> list[Pair]:
    """Raises TrainingError where a corpus has no path, or there are too few pairs for one batch."""
    return stage_pairs(settings, data)


def validation_pairs(settings: TrainingSettings, data: Mapping[str, Path]) -> list[Pair]:
    """Raises NotFoundError where the corpus has no path."""
    name = settings.valid
    if name not in data:
        raise NotFoundError.of(
            "corpus", name, data, fix=f"Add --data {name}=PATH, or --set training.valid=NAME"
        )
    found = read_pairs(name, data[name], "valid", listener_only=has_listener(name))
    return found[: settings.valid_rows or None]


def run_training(
    job: Job,
    kind: str,
    training: TrainingSettings,
    model: Mapping[str, Any],
    pairs: Sequence[Pair],
    make: Callable[[], Task],
) -> GeneratorResult:
    """Train, resuming what was interrupted, and install the result; a run that is done is installed only.

    `model` is what, beside `training` and the pairs, the run depends on; `make` builds the task, on seeded
    random numbers. The same job gives the same weights, interrupted or not. Raises TrainingError where the
    folder holds another run, and after SIGINT or SIGTERM, when a checkpoint is saved.
    """
    folder = GeneratorRunFolder(job.folder)
    with exclusive(folder.path, "training"), quiet():
        if job.fresh:
            shutil.rmtree(folder.path, ignore_errors=True)
        settings = {
            "generator": kind,
            "model": dict(model),
            "training": asdict(training),
            "pairs_sha256": pairs_hash(pairs),
        }
        folder.claim_settings(settings, _MAY_CHANGE)
        if not folder.result_file.is_file():
            transformers.set_seed(training.seed)
            _Run(kind, training, folder, len(pairs), make(), job).run()
        result = GeneratorResult(**{**read_json(folder.result_file), "generator": job.out})
        manifest = Manifest(
            kind=kind,
            origin=f"trained on {result.pairs:,} pairs of {', '.join(training.corpora)}",
            licence=training.licence,
            figures=tuple(Figure(f"valid_{key}", value) for key, value in result.metrics.items()),
        )
        write_generator(
            job.out, manifest, lambda path: shutil.copytree(folder.model, path, dirs_exist_ok=True)
        )
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    kind: str
    training: TrainingSettings
    folder: GeneratorRunFolder
    pairs: int
    task: Task
    job: Job

    def run(self) -> None:
        """Raises TrainingError where a signal stopped it."""
        meter = TokenMeter()
        watcher = Watcher(self.folder, meter, _OBJECTIVE, self.training, self._keep, self.job.console)
        count = sum(weight.numel() for weight in trainable(self.task.model).values())
        steps = watcher.train(
            f"{self.kind}: {self.pairs:,} pairs", count, lambda _: self._trainer(meter, watcher)
        )
        self.folder.plot()
        result = GeneratorResult(
            kind=self.kind,
            generator=self.job.out,
            steps=steps,
            best_step=watcher.run.best_step,
            pairs=self.pairs,
            trainable=count,
            seconds=round(watcher.run.seconds, 1),
            metrics=watcher.run.metrics,
        )
        write_json(self.folder.result_file, result.to_dict())
        shutil.rmtree(self.folder.checkpoints, ignore_errors=True)

    def _keep(self) -> None:
        replace_folder(self.folder.model, self.task.save)

    def _trainer(self, meter: TokenMeter, watcher: Watcher) -> TaskTrainer:
        training = self.training
        arguments = TrainingArguments(
            output_dir=str(self.folder.checkpoints),
            num_train_epochs=1,  # the plan has all of them
            per_device_train_batch_size=training.batch_size // training.accumulate,
            gradient_accumulation_steps=training.accumulate,
            learning_rate=training.learning_rate,
            lr_scheduler_type=training.schedule,
            warmup_steps=training.warmup,
            weight_decay=training.weight_decay,
            max_grad_norm=training.gradient_norm,
            bf16=use_bf16(training.precision),
            use_cpu=not torch.cuda.is_available(),
            seed=training.seed,
            eval_strategy="steps",
            eval_steps=training.eval_steps,
            save_strategy="no",  # the watcher asks for checkpoints, by the clock
            save_total_limit=2,
            logging_steps=_LOG_STEPS,
            disable_tqdm=True,
            report_to="none",
        )
        plan = batch_plan(self.task.lengths, training.batch_size, training.epochs, training.seed)
        part = training.batch_size // training.accumulate
        parts = [rows[at : at + part] for rows in plan for at in range(0, len(rows), part)]
        return TaskTrainer(self.task, parts, arguments, meter, watcher)
