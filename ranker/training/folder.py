"""The folder of a run: what is in it, when it may be taken up again, and replacing its parts safely.

A stage of an encoder's training has

settings.json   what it was started with; another recipe in the same folder is refused
metrics.jsonl   loss, P@1 in batch and validation figures by step
plot.png        of these
vectors/        of teachers, and for mining: made once, before the first step
checkpoints/    the last two, until the stage is done
best/           the model with the best validation figure so far, until the stage is done
model/          the result, a sentence-transformers folder (low-rank updates merged)
adapter/        with LoRA: the updates alone
result.json     written last: the stage is done
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ranker.errors import IntegrityError, TrainingError
from ranker.storage import read_json, write_bytes, write_json
from ranker.training.settings import ModelSettings, Stage, StageSettings

STATE = "run_state.json"
"""Written last into a checkpoint: one without it was cut off and does not count."""

_MAY_CHANGE = ("save_minutes", "feedback_repeats")
"""The second shows in the hash of the pairs, if it matters."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """A finished stage. `metrics` are the best validation figures; `seconds` over all its sittings."""

    stage: Stage
    model: Path
    steps: int
    best_step: int
    pairs: int
    trainable: int
    seconds: float
    metrics: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "model": str(self.model)}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of anything that is trained, and what they mean."""

    path: Path
    panels: ClassVar[tuple[tuple[str, ...], ...]] = (("loss",),)
    """Keys of the metrics that are drawn together, one tuple for each part of the plot."""

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    def claim_settings(self, settings: dict[str, Any], may_change: Collection[str] = ()) -> None:
        """Note what the run is; `may_change` names dotted keys that may differ from before.

        Raises TrainingError where the folder holds a run of something else.
        """
        now = json.loads(json.dumps(settings))
        path = self.path / "settings.json"
        if not path.is_file():
            write_json(path, now)
            return
        changed = sorted(_differences(read_json(path), now) - set(may_change))
        if changed:
            raise TrainingError(
                f"{self.path} holds a run with other settings ({', '.join(changed)} differ)",
                fix="Run it with the old ones, choose another --name, or start again with --fresh",
            )

    def last_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; cut-off ones are removed."""
        whole: list[tuple[int, Path]] = []
        for path in self.checkpoints.glob("checkpoint-*"):
            try:
                read_json(path / STATE)
            except IntegrityError:
                shutil.rmtree(path, ignore_errors=True)
                continue
            whole.append((step_of(path), path))
        return max(whole)[1] if whole else None

    def append_metrics(self, row: dict[str, float]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Rows by step; a line cut off by a crash ends them."""
        rows: list[dict[str, Any]] = []
        for line in self.metrics.read_text("utf-8").splitlines() if self.metrics.is_file() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def rewind_metrics(self, step: int) -> None:
        """Forget the rows after `step`: they will be written again."""
        rows = [row for row in self.read_metrics() if row["step"] <= step]
        write_bytes(self.metrics, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def plot(self) -> None:
        """Draw the panels over the steps."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows = self.read_metrics()
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for axis, keys in zip(axes, self.panels, strict=True):
            for key in keys:
                points = [(row["step"], row[key]) for row in rows if key in row]
                if points:
                    marker = "." if key.startswith("valid") else ""
                    axis.plot(*zip(*points, strict=True), marker=marker, label=key)
            if axis.lines:
                axis.legend()
            axis.set_xlabel("step")
            axis.grid(alpha=0.3)
        figure.savefig(self.path / "plot.png", dpi=110)


@dataclass(frozen=True, slots=True)
class StageFolder(RunFolder):
    """The folder of a stage of an encoder's training."""

    panels: ClassVar[tuple[tuple[str, ...], ...]] = (("loss",), ("batch_p_at_1", "valid_p_at_1"))

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    @property
    def vectors(self) -> Path:
        return self.path / "vectors"

    def claim(
        self,
        name: Stage,
        stage: StageSettings,
        model: ModelSettings,
        pairs_sha256: str,
        start: Path | None,
        labels_sha256: str | None = None,
    ) -> None:
        """Note what the run is; `labels_sha256` is that of the label model behind prepended labels. Raises
        TrainingError where the folder holds a run of something else."""
        self.claim_settings(
            {
                "stage": name,
                "model": asdict(model),
                name: asdict(stage),
                "pairs_sha256": pairs_sha256,
                "start": str(start) if start else None,
                "labels_sha256": labels_sha256,
            },
            may_change=[f"{name}.{key}" for key in _MAY_CHANGE],
        )

    def result(self) -> StageResult | None:
        """Of a stage that is done."""
        if not self.result_file.is_file():
            return None
        return StageResult(**{**read_json(self.result_file), "model": self.model})

    def finish(self, result: StageResult) -> None:
        """Write the result and remove what only an unfinished stage needs."""
        write_json(self.result_file, result.to_dict())
        for leftover in (self.checkpoints, self.vectors):
            shutil.rmtree(leftover, ignore_errors=True)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def replace_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside `target`, then put it in its place: never a half-written one under that name."""
    fresh, old = target.with_name(f"{target.name}.new"), target.with_name(f"{target.name}.old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    write(fresh)
    if target.exists():
        target.replace(old)
    fresh.replace(target)
    shutil.rmtree(old, ignore_errors=True)


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key in before.keys() | now.keys():
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found |= _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.add(f"{prefix}{key}")
    return found
