"""Running a recipe: its stages in order, each in its own folder (see `folder`), each resumable."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from rich.console import Console
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.model import BaseModel
from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

from ranker.corpora import Pair
from ranker.encoders import load_encoder
from ranker.encoders.torch import TorchEncoder, layout_of
from ranker.errors import ConfigError, NotFoundError
from ranker.home import Home
from ranker.labels import Prepender
from ranker.storage import exclusive
from ranker.training.batches import DistinctResponses, PairCollator
from ranker.training.data import feedback_pairs, pair_dataset, pairs_hash, stage_pairs, with_feedback
from ranker.training.folder import StageFolder, StageResult, replace_folder
from ranker.training.labels import find_prepender
from ranker.training.losses import DistillationLoss, RankingLoss
from ranker.training.models import (
    build_model,
    load_trainable,
    merged,
    prepare,
    save_trainable,
    trainable,
)
from ranker.training.settings import STAGES, ModelSettings, Precision, Recipe, Stage, StageSettings
from ranker.training.vectors import mined_negatives, teacher_vectors
from ranker.training.watch import Measure, Objective, PairMeter, Watcher
from ranker.types import Encoder, Progress

_LOG_STEPS = 5
_OBJECTIVE = Objective("p_at_1", "P@1", larger_is_better=True)
_WEIGHTS = "trainable.safetensors"
_LEARN_FEEDBACK: frozenset[Stage] = frozenset({"finetune", "distill"})


def run_recipe(
    recipe: Recipe,
    folder: Path,
    data: Mapping[str, Path],
    measure: Measure,
    *,
    only: Sequence[str] = (),
    start: Path | None = None,
    feedback: Path | None = None,
    fresh: bool = False,
    home: Home | None = None,
    console: Console | None = None,
) -> list[StageResult]:
    """Run the stages that are not done yet, resuming the one that was interrupted.

    `data` maps corpora to their folders or files; `start` is a model folder to begin from instead of a new
    model; `feedback` is a file of edits, for every stage but pretrain; `home` is where label models to
    prepend are looked for, before the package's own. The same recipe, data and seed give the same weights,
    interrupted or not.

    Raises TrainingError where the folder holds a run with other settings, and after SIGINT or SIGTERM, when a
    checkpoint is saved; ConfigError where no stage learns from feedback.
    """
    console = console or Console(stderr=True)
    results: list[StageResult] = []
    prepender = find_prepender(recipe.model, start, home)

    edits = feedback_pairs(feedback) if feedback else []
    if edits and not _LEARN_FEEDBACK & recipe.stages(only).keys():
        raise ConfigError("no stage that runs learns from feedback", fix="Run the stage finetune as well")

    def pairs_of(name: Stage, stage: StageSettings) -> list[Pair]:
        found = stage_pairs(stage, data)
        return with_feedback(found, edits, stage) if name in _LEARN_FEEDBACK else found

    def texts() -> Iterator[str]:
        for name, stage in recipe.stages().items():
            for pair in pairs_of(name, stage):
                yield from (*pair.context.turns[-1:], pair.response)

    for name, stage in recipe.stages(only).items():
        place = StageFolder(folder / name)
        with exclusive(place.path, "training"), quiet():
            if fresh:
                shutil.rmtree(place.path, ignore_errors=True)
            pairs = pairs_of(name, stage)
            sha256 = pairs_hash(pairs)
            place.claim(
                name,
                stage,
                recipe.model,
                sha256,
                start,
                labels_sha256=prepender.setting.sha256 if prepender else None,
            )
            result = place.result()
            if result is None:
                transformers.set_seed(stage.seed)
                model = build_model(recipe.model, start, texts, prepender)
                result = _StageRun(
                    name, stage, recipe.model, place, pairs, sha256, model, start, prepender, measure, console
                ).run()
        console.print(f"{name}: done, best P@1 {result.metrics['p_at_1']:.2f} on validation", highlight=False)
        results.append(result)
        start = result.model
    return results


@dataclass(frozen=True, slots=True)
class _StageRun:
    """One stage from its start model to its result."""

    name: Stage
    stage: StageSettings
    settings: ModelSettings
    folder: StageFolder
    pairs: Sequence[Pair]
    pairs_sha256: str
    model: SentenceTransformer
    start: Path | None
    prepender: Prepender | None
    measure: Measure
    console: Console

    def run(self) -> StageResult:
        dataset = self._dataset()
        prepare(self.model, self.settings)
        loss = self._loss()
        meter = PairMeter(loss, self.stage.batch_size)
        watcher = Watcher(self.folder, meter, _OBJECTIVE, self.stage, self._keep, self.console)
        steps = watcher.train(
            f"{self.name}: {len(self.pairs):,} pairs",
            self._weights,
            lambda is_new: self._trainer(dataset, loss, watcher, is_new=is_new),
        )
        return self._finish(watcher, steps)

    def _dataset(self) -> Dataset:
        """The tokenised pairs, with negatives mined by the start model where the stage asks for them."""
        negatives: list[list[str]] = []
        if self.stage.hard_negatives:
            with self._bf16():
                negatives = mined_negatives(
                    self._encoder(),
                    self.pairs,
                    self.pairs_sha256,
                    self.folder.vectors,
                    self._progress("vectors for mining"),
                    count=self.stage.hard_negatives,
                    margin=self.stage.negative_margin,
                    seed=self.stage.seed,
                )
        layout = layout_of(self.model, max_tokens=self.settings.max_tokens, prepender=self.prepender)
        return pair_dataset(self.pairs, layout, negatives)

    def _loss(self) -> RankingLoss | DistillationLoss:
        stage = self.stage
        if not stage.teachers:
            return RankingLoss(
                self.model,
                scale=stage.scale,
                learned_scale=stage.scale_learning_rate > 0,
                both_directions=stage.both_directions,
                micro_batch=stage.micro_batch,
                gradient_cache=stage.gradient_cache,
            )
        with self._bf16():
            contexts, responses = teacher_vectors(
                [_teacher(name, self.folder.path.parent.parent) for name in stage.teachers],
                self.pairs,
                self.pairs_sha256,
                self.folder.vectors,
                self._progress("the teachers' vectors"),
            )
        return DistillationLoss(
            self.model,
            torch.from_numpy(contexts),
            torch.from_numpy(responses),
            scale=stage.scale,
            teacher_scale=stage.teacher_scale,
            label_weight=stage.label_weight,
            both_directions=stage.both_directions,
            micro_batch=stage.micro_batch,
            gradient_cache=stage.gradient_cache,
        )

    def _trainer(
        self, dataset: Dataset, loss: RankingLoss | DistillationLoss, watcher: Watcher, *, is_new: bool
    ) -> SentenceTransformerTrainer:
        stage = self.stage
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(self.folder.checkpoints),
            num_train_epochs=stage.epochs,
            per_device_train_batch_size=stage.batch_size,
            batch_sampler=DistinctResponses,
            dataloader_drop_last=True,
            dataloader_pin_memory=False,
            learning_rate=stage.learning_rate,
            learning_rate_mapping={r"^loss\.scale$": stage.scale_learning_rate}
            if loss.learned_scale is not None
            else {},
            lr_scheduler_type=stage.schedule,
            warmup_steps=stage.warmup,
            weight_decay=stage.weight_decay,
            bf16=use_bf16(stage.precision),
            use_cpu=not torch.cuda.is_available(),
            seed=stage.seed,
            eval_strategy="steps",
            eval_steps=stage.eval_steps,
            eval_on_start=is_new,
            save_strategy="no",  # the watcher asks for checkpoints, by the clock
            save_total_limit=2,
            logging_steps=_LOG_STEPS,
            disable_tqdm=True,
            report_to="none",
        )
        trainer = _Trainer(
            model=self.model,
            args=arguments,
            train_dataset=dataset,
            loss=loss,
            evaluator=_Evaluator(self),
            data_collator=PairCollator(  # type: ignore[arg-type] # any callable with valid_label_columns serves
                int(self.model.tokenizer.pad_token_id)
            ),
            callbacks=[watcher],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer

    def figures(self) -> dict[str, float]:
        """What `measure` says of the model as it is now."""
        with self._bf16():
            return dict(self.measure(self._encoder()))

    def _encoder(self) -> TorchEncoder:
        return TorchEncoder(self.model, max_tokens=self.settings.max_tokens, prepender=self.prepender)

    @property
    def _weights(self) -> int:
        return sum(weight.numel() for weight in trainable(self.model).values())

    def _keep(self) -> None:
        """Write the model as it is now to where the result goes."""
        if self.settings.lora_rank and self.settings.is_one_tower:
            replace_folder(self.folder.adapter, lambda path: _save_plainly(self.model, path))
        whole = merged(self.model, self.settings, self.start, self.prepender)

        def write(path: Path) -> None:
            _save_plainly(whole, path)
            if self.prepender is not None:
                self.prepender.save(path)

        replace_folder(self.folder.model, write)

    def _finish(self, watcher: Watcher, steps: int) -> StageResult:
        result = StageResult(
            stage=self.name,
            model=self.folder.model,
            steps=steps,
            best_step=watcher.run.best_step,
            pairs=len(self.pairs),
            trainable=self._weights,
            seconds=round(watcher.run.seconds, 1),
            metrics=watcher.run.metrics,
        )
        self.folder.plot()
        self.folder.finish(result)
        return result

    def _bf16(self) -> torch.autocast:
        return torch.autocast(
            self.model.device.type, dtype=torch.bfloat16, enabled=use_bf16(self.stage.precision)
        )

    def _progress(self, what: str) -> Progress:
        return lambda done, of: self.console.print(f"{what}: {done:,} of {of:,}", highlight=False)


class _Trainer(SentenceTransformerTrainer):
    """Without the automatic model card, whose statistics want columns of text; its checkpoints hold only what
    training changes."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        return

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_trainable(self.model, folder / _WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
        load_trainable(self.model, Path(resume_from_checkpoint) / _WEIGHTS)


class _Evaluator(BaseEvaluator):
    """The stage's figures as the trainer asks for them."""

    def __init__(self, run: _StageRun) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # it has no annotations
        self._run = run

    def __call__(
        self, model: BaseModel, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        return self._run.figures()


def _save_plainly(model: SentenceTransformer, folder: Path) -> None:
    model.save_pretrained(str(folder), create_model_card=False)


def _teacher(name: str, runs: Path) -> Encoder:
    """The result of the run called `name`, else the encoder of that name or folder."""
    for stage in reversed(STAGES):
        folder = StageFolder(runs / name / stage)
        if folder.result() is not None:
            return load_encoder(folder.model)
    try:
        return load_encoder(name)
    except NotFoundError as error:
        raise NotFoundError(
            f"no teacher called {name!r}: neither a finished run in {runs} nor an encoder",
            fix=f"Train it first (ranker train {name} ...), or name another: --teacher FOLDER",
        ) from error


def use_bf16(precision: Precision) -> bool:
    """Whether to compute in bf16; "auto": where the processor can."""
    if precision != "auto":
        return precision == "bf16"
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' own progress bars and remarks, which would tear the live line."""
    talk: Any = transformers.utils.logging  # its functions have no annotations
    verbosity, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(verbosity)
        if bars:
            talk.enable_progress_bar()
