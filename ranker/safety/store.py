"""A classifier on disk: a folder with `manifest.json` and the numbers beside it.

The manifest names the numbers' file and its hash. It is written last, so that it always names a whole file;
the hash is checked before the file is parsed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.safety.classifier import LineClassifier
from ranker.safety.labelled import Task
from ranker.safety.ngrams import BUCKETS
from ranker.storage import MANIFEST, read_json, read_safetensors, write_model_files

FORMAT = 2
_STEPS = 127  # of a signed byte
_TINY = np.float32(1e-12)
_RETRAIN = "Train it again: ranker train-safety"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder holds: a classifier for the vectors of `encoder`, fitted to `lines` lines
    and `ordinary` turns of the pools' samples."""

    task: Task
    outputs: tuple[str, ...]
    encoder: str
    dim: int
    gamma: float
    lines: int
    lines_sha256: str
    ordinary: int
    settings: str
    figures: tuple[str, ...] = ()
    """By cross-validation on the lines, as sentences."""
    file: str = ""
    sha256: str = ""
    size: int = 0
    package: str = ""
    format: int = FORMAT


def model_folder(task: Task, home: Home | None = None) -> Path:
    """The folder of a task's classifier: the home's where it has one, else the package's."""
    own = None if home is None else home.models / "safety" / task
    return own if own is not None and (own / MANIFEST).is_file() else EMBEDDED / "safety" / task


def write_classifier(folder: Path, manifest: Manifest, model: LineClassifier) -> Manifest:
    """Write a classifier into `folder`, atomically, over what was there. Returns the manifest as written."""
    # Bytes and half precision take far less room, and the scores differ by less than anybody could tell.
    scales = np.abs(model.support).max(axis=1, keepdims=True) / _STEPS
    tensors: dict[str, NDArray[Any]] = {
        "support": np.rint(model.support / np.maximum(scales, _TINY)).astype(np.int8),
        "support_scales": scales.astype(np.float32),
        "support_weights": model.support_weights.astype(np.float16),
        "word_weights": model.word_weights.astype(np.float16),
        "bias": model.bias.astype(np.float32),
    }
    write_model_files(folder, asdict(manifest), tensors)
    return read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """A folder's manifest. Raises NotFoundError where there is none, IntegrityError for a damaged one."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"no safety model in {folder}", fix=_RETRAIN)
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise IntegrityError(f"{path} is not a manifest of format {FORMAT}", fix=_RETRAIN)
    try:
        manifest = from_table(Manifest, value, source=str(path))
    except ConfigError as error:
        raise IntegrityError(f"{path} is not a manifest: {error}", fix=_RETRAIN) from error
    if not manifest.outputs or Path(manifest.file).name != manifest.file or not manifest.file:
        raise IntegrityError(f"{path} has no outputs, or names no file beside it", fix=_RETRAIN)
    return manifest


def read_classifier(folder: Path, task: Task) -> LineClassifier:
    """The classifier in a folder. Raises NotFoundError without one, IntegrityError where it is damaged."""
    manifest = read_manifest(folder)
    if manifest.task != task:
        raise IntegrityError(f"{folder} holds the {manifest.task} model, not {task}", fix=_RETRAIN)
    path = folder / manifest.file
    read = read_safetensors(path, size=manifest.size, sha256=manifest.sha256, fix=_RETRAIN)
    tensors = {name: tensor.astype(np.float32) for name, tensor in read.items()}
    outputs = len(manifest.outputs)
    rows = len(tensors.get("support", ()))
    shapes = {
        "support": (rows, manifest.dim),
        "support_scales": (rows, 1),
        "support_weights": (rows, outputs),
        "word_weights": (BUCKETS, outputs),
        "bias": (outputs,),
    }
    for name, shape in shapes.items():
        found = tensors.get(name)
        if found is None or found.shape != shape or not np.isfinite(found).all():
            raise IntegrityError(f"the array {name!r} in {path} does not fit the manifest", fix=_RETRAIN)
    return LineClassifier(
        manifest.outputs,
        manifest.encoder,
        manifest.gamma,
        tensors["support"] * tensors["support_scales"],
        tensors["support_weights"],
        tensors["word_weights"],
        tensors["bias"],
    )
