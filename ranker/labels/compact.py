"""fastText models made small: the weightiest n-grams kept, a byte per number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.errors import IntegrityError
from ranker.labels.fasttext import FastTextLabeler, FastTextModel, Floats
from ranker.labels.store import Manifest, Tensors, read_manifest, read_tensors, tensor, write_model

_SEPARATOR = "\n"  # never inside a fastText word
_BUCKET_BYTES = 4
_SCALE_BYTES = 4


def prune(model: FastTextModel, most_bytes: int) -> FastTextModel:
    """The model with only as many n-gram rows as fit into `most_bytes` once quantised: those of the largest
    norm, as fastText's own cutoff chooses. Words are all kept."""
    row_bytes = model.shape.dim + _SCALE_BYTES
    words = len(model.words)
    fixed = words * row_bytes + len(_SEPARATOR.join(model.words).encode("utf-8", "surrogateescape"))
    fixed += model.output.size * 4
    room = max(0, (most_bytes - fixed) // (row_bytes + _BUCKET_BYTES))
    buckets = np.arange(model.shape.bucket, dtype=np.int64) if model.buckets is None else model.buckets
    if len(buckets) <= room:
        return model
    norms = np.linalg.norm(model.rows[words:], axis=1)
    kept = np.sort(np.argsort(-norms, kind="stable")[:room])
    rows = np.concatenate([model.rows[:words], model.rows[words:][kept]])
    return replace(model, rows=rows, buckets=buckets[kept])


def quantise(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Each row as whole numbers within -127..127 and the scale (rows,) that restores them."""
    scales = np.abs(rows).max(axis=1, initial=0.0) / 127
    scales[scales == 0] = 1.0
    return np.rint(rows / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def write_fasttext(folder: Path, manifest: Manifest, model: FastTextModel) -> Manifest:
    """Write a model with its input rows quantised. Returns the manifest as written."""
    codes, scales = quantise(model.rows)
    words = _SEPARATOR.join(model.words).encode("utf-8", "surrogateescape")
    tensors: Tensors = {
        "codes": codes,
        "scales": scales,
        "output": model.output.astype(np.float32),
        "words": np.frombuffer(words, np.uint8),
    }
    if model.buckets is not None:
        tensors["buckets"] = model.buckets.astype(np.int32)
    shown = replace(manifest, labels=model.labels, fasttext=model.shape, head=None)
    return write_model(folder, shown, tensors)


def read_fasttext(folder: Path) -> FastTextLabeler:
    """The labeler in a model folder. Raises NotFoundError, or IntegrityError for a damaged model."""
    manifest = read_manifest(folder)
    shape = manifest.fasttext
    if shape is None:
        raise IntegrityError(f"{folder} holds no fastText model")
    tensors = read_tensors(folder, manifest)
    words = _words(tensor(tensors, "words", np.uint8, (-1,)), folder)
    buckets = None
    kept = shape.bucket
    if "buckets" in tensors:
        buckets = tensor(tensors, "buckets", np.int32, (-1,)).astype(np.int64)
        kept = len(buckets)
        if kept and (buckets[0] < 0 or buckets[-1] >= shape.bucket or (np.diff(buckets) <= 0).any()):
            raise IntegrityError(f"the n-grams in {folder} are out of range")
    codes = tensor(tensors, "codes", np.int8, (len(words) + kept, shape.dim))
    scales = tensor(tensors, "scales", np.float32, (len(codes),))
    output = tensor(tensors, "output", np.float32, (len(manifest.labels), shape.dim))
    if not (np.isfinite(scales).all() and np.isfinite(output).all()):
        raise IntegrityError(f"the model in {folder} holds numbers that are not finite")
    rows = codes.astype(np.float32) * scales[:, None]
    return FastTextLabeler(manifest.kind, FastTextModel(shape, manifest.labels, words, rows, output, buckets))


def _words(data: NDArray[np.uint8], folder: Path) -> tuple[str, ...]:
    words = tuple(data.tobytes().decode("utf-8", "surrogateescape").split(_SEPARATOR)) if data.size else ()
    if len(set(words)) != len(words):
        raise IntegrityError(f"the words in {folder} repeat themselves")
    return words
