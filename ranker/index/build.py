"""Building, tuning, measuring, saving and loading an index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ranker.errors import InputError, IntegrityError
from ranker.index.exact import ExactIndex, exact_search
from ranker.index.parameters import APPROXIMATE, IndexParameters, Kind, default_parameters
from ranker.storage import map_array, write_array, write_blob
from ranker.types import Hits, Progress, VectorIndex, Vectors

if TYPE_CHECKING:
    from ranker.index.native import FlatIndex, RefinedIndex

TARGET_RECALL = 0.97
"""Recall@10 that tuning asks for on its sample: enough to stay above 0.95 on other contexts, whose mean may
be lower by more than a point."""

_SAMPLE = 512
_VECTORS = "vectors.npy"
_STRUCTURE = "structure.faiss"


class _Effort(NamedTuple):
    """What one search may cost; see IndexParameters."""

    probes: int = 0
    breadth: int = 0
    refine: int = 4

    def within(self, parameters: IndexParameters) -> IndexParameters:
        probes = min(self.probes, parameters.lists)
        return replace(parameters, probes=probes, breadth=self.breadth, refine=self.refine)


_EFFORTS: dict[Kind, tuple[_Effort, ...]] = {
    "ivfpq": tuple(
        _Effort(probes=probes, refine=20) for probes in (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024)
    ),
    "hnsw": tuple(_Effort(breadth=breadth) for breadth in (32, 64, 128, 256, 512)),
    "sq8": (_Effort(),),
}
"""Cheapest first."""


def build_index(
    kind: Kind,
    vectors: Vectors,
    progress: Progress | None = None,
    *,
    sample: Vectors | None = None,
) -> ExactIndex | FlatIndex | RefinedIndex:
    """An index of this kind over `vectors`, which it keeps a reference to.

    An approximate one is tuned to the least effort that reaches TARGET_RECALL on `sample`: vectors of
    contexts, if there are any at hand, else `stand_ins(vectors)`. Raises InputError for vectors that are not
    finite float32 rows, and for too few of them.
    """
    if vectors.ndim != 2 or vectors.dtype != np.float32 or not vectors.shape[1]:
        raise InputError(f"expected float32 vectors (rows, dim), not {vectors.dtype} {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise InputError("a vector holds a number that is not finite")
    vectors = np.ascontiguousarray(vectors)
    if kind == "exact":
        return ExactIndex(vectors)
    from ranker.index import native  # FAISS is not needed by the exact path

    if kind == "flat":
        return native.FlatIndex(vectors)
    if not len(vectors):
        raise InputError(f"an index of kind {kind} needs at least one vector")
    index = native.build_structure(vectors, default_parameters(kind, len(vectors)), progress)
    return _tuned(index, stand_ins(vectors) if sample is None else sample)


def measured_recall(index: VectorIndex, vectors: Vectors, sample: Vectors, k: int = 10) -> float:
    """Share of the true k best that `index` finds, on average over the rows of `sample`, in 0..1.

    By value: a row counts as one of the best where its score reaches the k-th best, so that it does not
    matter which of several equal rows was found.
    """
    return _recall(index, vectors, sample, exact_search(vectors, sample, k, None))


def stand_ins(vectors: Vectors) -> Vectors:
    """Vectors like those of contexts, for measuring without any: normalised sums of two rows each.

    The rows themselves would flatter an index: a row is its own nearest neighbour, a context is not.
    """
    pairs = np.random.default_rng(0).integers(len(vectors), size=(min(_SAMPLE, len(vectors)), 2))
    sums = vectors[pairs[:, 0]] + vectors[pairs[:, 1]]
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.maximum(lengths, 1e-6), np.float32)


def save_index(index: ExactIndex | FlatIndex | RefinedIndex, folder: Path, prefix: str = "") -> list[Path]:
    """Write an index into an existing folder: the vectors, and FAISS's structure where there is one.

    Raises OSError as the disk does.
    """
    files = [folder / f"{prefix}{_VECTORS}"]
    write_array(files[0], index.vectors)
    if index.parameters.kind in APPROXIMATE:
        from ranker.index.native import RefinedIndex

        assert isinstance(index, RefinedIndex)
        files.append(folder / f"{prefix}{_STRUCTURE}")
        write_blob(files[1], index.serialized())
    return files


def load_index(
    folder: Path, parameters: IndexParameters, prefix: str = ""
) -> ExactIndex | FlatIndex | RefinedIndex:
    """Open what `save_index` wrote, memory-mapped. Check the files' hashes first: FAISS trusts its input.

    Raises IntegrityError where a file is missing or not what the parameters speak of.
    """
    vectors = map_array(folder / f"{prefix}{_VECTORS}", np.float32, ndim=2)
    if parameters.kind == "exact":
        return ExactIndex(vectors)
    from ranker.index import native

    if parameters.kind == "flat":
        return native.FlatIndex(vectors)
    path = folder / f"{prefix}{_STRUCTURE}"
    if not path.is_file():
        raise IntegrityError(f"{path} is missing")
    return native.read_structure(path, vectors, parameters)


def _tuned(index: RefinedIndex, sample: Vectors) -> RefinedIndex:
    truth = exact_search(index.vectors, sample, 10, None)
    tried = index
    for effort in _EFFORTS[index.parameters.kind]:
        tried = index.with_parameters(effort.within(index.parameters))
        if _recall(tried, index.vectors, sample, truth) >= TARGET_RECALL:
            break
    return tried


def _recall(index: VectorIndex, vectors: Vectors, sample: Vectors, truth: Hits) -> float:
    if not truth.ids.size:
        return 1.0
    found = index.search(sample, truth.ids.shape[1])
    scores = np.einsum("qd,qkd->qk", sample, vectors[found.ids])
    # Sums in another order differ in the last digits.
    return float((scores >= truth.scores[:, -1:] - 1e-5).mean())
