"""Indexes on FAISS. Imported only when one is built or loaded: the exact path does without FAISS.

FAISS narrows a search down; the scores that come out are exact inner products with the stored vectors,
whatever the compression inside. One query is searched by one thread; a batch is spread over OpenMP's
threads, which OMP_NUM_THREADS limits. Searches share no state, so any number of threads may run them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError, IntegrityError
from ranker.index.exact import check_search, exact_search, settle
from ranker.index.parameters import IndexParameters
from ranker.types import Hits, Progress, Vectors

faiss: Any = _faiss
"""Untyped: the stubs that come with it know neither the keyword arguments nor all classes."""

_FEW = 4_096
_FEW_SHARE = 0.02
"""Where a filter leaves no more rows than this (number or share), scoring exactly these rows is faster than
any structure over all rows, in which most of what a search meets would be thrown away, and it misses none."""

_IVFPQ_ROWS = 256
"""Fewer rows cannot train the 16 centroids of each part of a product quantiser sensibly."""

_ADD_BLOCK = 16_384
_TRAINING_ROWS = 65_536
_CONSTRUCTION_BREADTH = 200


class FlatIndex:
    """Scores every allowed row with FAISS's kernels, on the vectors where they lie: nothing is copied."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.parameters = IndexParameters("flat")

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def count(self) -> int:
        return int(self.vectors.shape[0])

    def search(self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None = None) -> Hits:
        """See VectorIndex.search. Raises InputError for k < 1 and for vectors of another shape."""
        check_search(queries, k, allowed, dim=self.dim, count=self.count)
        rows = self.count if allowed is None else int(np.count_nonzero(allowed))
        if allowed is not None and rows <= _few(self.count):
            return exact_search(self.vectors, queries, k, allowed)
        queries = np.ascontiguousarray(queries, np.float32)
        k = min(k, rows)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        if queries.size and k:
            faiss.knn_inner_product(
                faiss.swig_ptr(queries),
                faiss.swig_ptr(self.vectors),
                self.dim,
                len(queries),
                self.count,
                k,
                faiss.swig_ptr(scores),
                faiss.swig_ptr(ids),
                *([] if allowed is None else [_selector(allowed)]),
            )
        return settle(self.vectors, queries, list(ids), k)


class RefinedIndex:
    """hnsw, sq8 or ivfpq: FAISS proposes `refine` rows for each hit asked for, their exact scores decide."""

    def __init__(self, vectors: Vectors, structure: Any, parameters: IndexParameters) -> None:
        self.vectors = vectors
        self.parameters = parameters
        self._structure = structure

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def count(self) -> int:
        return int(self.vectors.shape[0])

    def with_parameters(self, parameters: IndexParameters) -> RefinedIndex:
        """The same structure, searched with another effort."""
        return RefinedIndex(self.vectors, self._structure, parameters)

    def search(self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None = None) -> Hits:
        """See VectorIndex.search. Raises InputError for k < 1 and for vectors of another shape."""
        check_search(queries, k, allowed, dim=self.dim, count=self.count)
        rows = self.count if allowed is None else int(np.count_nonzero(allowed))
        k = min(k, rows)
        proposals = max(k, 10) * self.parameters.refine  # the effort was tuned for ten hits
        if rows <= _few(self.count) or proposals > rows // 4:
            return exact_search(self.vectors, queries, k, allowed)
        queries = np.ascontiguousarray(queries, np.float32)
        search = self._search_parameters(proposals, rows, allowed)
        _, proposed = self._structure.search(queries, proposals, params=search)
        rows_found = [ids[ids >= 0] for ids in proposed]
        for place, ids in enumerate(rows_found):
            if ids.size < k:
                # The part of the structure that was searched held too few allowed rows.
                rows_found[place] = exact_search(self.vectors, queries[place : place + 1], k, allowed).ids[0]
        return settle(self.vectors, queries, rows_found, k)

    def serialized(self) -> NDArray[np.uint8]:
        """FAISS's bytes. Written by Python, because FAISS's own writer hides why a write failed."""
        data: NDArray[np.uint8] = faiss.serialize_index(self._structure)
        return data

    def _search_parameters(self, proposals: int, rows: int, allowed: NDArray[np.bool_] | None) -> Any:
        """The effort, raised in proportion where a filter thins out what a search meets."""
        selector = None if allowed is None else _selector(allowed)
        thinning = self.count / rows
        if self.parameters.kind == "ivfpq":
            # Twice as many rows looked at as are proposed, for searches with a very large k.
            needed = 2 * proposals * self.parameters.lists / rows
            probes = min(self.parameters.lists, math.ceil(max(self.parameters.probes * thinning, needed)))
            return faiss.SearchParametersIVF(sel=selector, nprobe=probes)
        if self.parameters.kind == "hnsw":
            breadth = min(self.count, math.ceil(max(self.parameters.breadth, proposals) * thinning))
            return faiss.SearchParametersHNSW(sel=selector, efSearch=breadth)
        return faiss.SearchParameters(sel=selector)


def build_structure(vectors: Vectors, parameters: IndexParameters, progress: Progress | None) -> RefinedIndex:
    """Train and fill hnsw, sq8 or ivfpq; the same vectors give the same structure on one thread.

    Raises InputError where there are too few rows for the kind.
    """
    count, dim = vectors.shape
    inner_product = faiss.METRIC_INNER_PRODUCT  # every FAISS constructor defaults to L2
    if parameters.kind == "ivfpq":
        if count < _IVFPQ_ROWS or dim % 2:
            raise InputError(
                f"an ivfpq index needs {_IVFPQ_ROWS}+ vectors of even length, not {count} of {dim}",
                fix="Choose the kind exact or hnsw",
            )
        part = 4 if dim % 4 == 0 else 2
        recipe = f"IVF{parameters.lists},PQ{dim // part}x4fs"
        structure = faiss.index_factory(dim, recipe, inner_product)
        structure.cp.max_points_per_centroid = (
            64  # a quarter of the default: no loss seen, a quarter of the time
        )
        structure.cp.min_points_per_centroid = structure.pq.cp.min_points_per_centroid = 1
        sample = min(count, max(_TRAINING_ROWS, 64 * parameters.lists))
    elif parameters.kind == "hnsw":
        structure = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, parameters.links, inner_product)
        structure.hnsw.efConstruction = _CONSTRUCTION_BREADTH
        sample = min(count, _TRAINING_ROWS)
    else:
        structure = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, inner_product)
        sample = min(count, _TRAINING_ROWS)
    if progress:
        progress(0, count)
    structure.train(_spread(vectors, sample))
    for start in range(0, count, _ADD_BLOCK):
        structure.add(np.ascontiguousarray(vectors[start : start + _ADD_BLOCK]))
        if progress:
            progress(min(start + _ADD_BLOCK, count), count)
    return RefinedIndex(vectors, structure, parameters)


def read_structure(path: Path, vectors: Vectors, parameters: IndexParameters) -> RefinedIndex:
    """Load hnsw, sq8 or ivfpq, memory-mapped. The file's hash must have been checked before.

    Raises IntegrityError where it is not the structure that the parameters and vectors speak of.
    """
    try:
        with _byte_limit(path.stat().st_size):
            structure = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IntegrityError(f"{path} is no FAISS index ({str(error).splitlines()[0]})") from error
    expected = {
        "ivfpq": faiss.IndexIVFPQFastScan,
        "hnsw": faiss.IndexHNSWSQ,
        "sq8": faiss.IndexScalarQuantizer,
    }[parameters.kind]
    found = (structure.ntotal, structure.d, structure.metric_type)
    if type(structure) is not expected or found != (*vectors.shape, faiss.METRIC_INNER_PRODUCT):
        raise IntegrityError(f"{path} does not hold the {parameters.kind} index of these vectors")
    return RefinedIndex(vectors, structure, parameters)


_limit_lock = threading.Lock()


@contextmanager
def _byte_limit(size: int) -> Iterator[None]:
    """Let FAISS allocate no more for a part of a file than the file is long. The limit is global in FAISS."""
    with _limit_lock:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(size)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


def _few(count: int) -> int:
    return max(_FEW, int(count * _FEW_SHARE))


def _selector(allowed: NDArray[np.bool_]) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


def _spread(vectors: Vectors, sample: int) -> Vectors:
    """`sample` rows, drawn once and for all: pools are stored in order, so their start is no fair sample."""
    if sample >= len(vectors):
        return np.ascontiguousarray(vectors)
    rows = np.random.default_rng(0).choice(len(vectors), sample, replace=False)
    return np.ascontiguousarray(vectors[np.sort(rows)])
