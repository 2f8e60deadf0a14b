"""A label model on disk: a folder with `manifest.json` and the numbers beside it.

The manifest names the numbers' file and its hash. It is written last, so that it always names a whole file;
the hash is checked before the file is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.labels.fasttext import FastTextShape
from ranker.storage import MANIFEST, read_json, read_safetensors, write_model_files
from ranker.types import LabelKind

FORMAT = 1
Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured on a model: `value` is per cent unless the name says otherwise."""

    name: str
    value: float
    rows: int


@dataclass(frozen=True, slots=True)
class Training:
    """What a model was made of."""

    data: str
    licence: str
    rows: int
    settings: str = ""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """A head's place: the encoder whose vectors it reads, and the temperature that calibrates it."""

    encoder: str
    dim: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder holds. Exactly one of `fasttext` and `head` is set."""

    kind: LabelKind
    labels: tuple[str, ...]
    training: Training
    figures: tuple[Figure, ...] = ()
    fasttext: FastTextShape | None = None
    head: HeadShape | None = None
    file: str = ""
    sha256: str = ""
    size: int = 0
    package: str = ""
    format: int = FORMAT


def write_model(folder: Path, manifest: Manifest, tensors: Mapping[str, NDArray[Any]]) -> Manifest:
    """Write a model into `folder`, atomically, over what was there. Returns the manifest as written."""
    table = {key: value for key, value in asdict(manifest).items() if value is not None}
    write_model_files(folder, table, tensors)
    return read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """A folder's manifest. Raises NotFoundError where there is no model, IntegrityError for a damaged one."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"no label model in {folder}", fix="To make one: ranker train-labels --help")
    value = read_json(path)
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} is not a manifest")
    if value.get("format") != FORMAT:
        raise IntegrityError(
            f"{path} is of format {value.get('format')!r}, not {FORMAT}",
            fix="Update the package, or train again",
        )
    try:
        manifest = from_table(Manifest, value, source=str(path))
    except (ConfigError, ValueError) as error:
        raise IntegrityError(f"{path} is not a manifest: {error}") from error
    if not manifest.labels or len(set(manifest.labels)) != len(manifest.labels):
        raise IntegrityError(f"{path} has no labels, or the same one twice")
    if (manifest.fasttext is None) == (manifest.head is None):
        raise IntegrityError(f"{path} must describe either fasttext or a head")
    if Path(manifest.file).name != manifest.file or not manifest.file:
        raise IntegrityError(f"{path} names no file beside it")
    return manifest


def read_tensors(folder: Path, manifest: Manifest) -> Tensors:
    """The numbers, once their size and hash are as the manifest says. Raises IntegrityError where not."""
    fix = "Train or copy the model again"
    return read_safetensors(folder / manifest.file, size=manifest.size, sha256=manifest.sha256, fix=fix)


def tensor(tensors: Tensors, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    """One array of a model, of the type and shape that it must have (-1: any length)."""
    found = tensors.get(name)
    if found is None or found.dtype != dtype or found.ndim != len(shape):
        raise IntegrityError(f"the model's array {name!r} is missing or of another type")
    if any(wanted not in (-1, size) for wanted, size in zip(shape, found.shape, strict=True)):
        raise IntegrityError(f"the model's array {name!r} is {found.shape}, not {shape}")
    return found
