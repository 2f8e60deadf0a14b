"""Every FAISS index against the oracle, by value."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import InputError, IntegrityError, NotFoundError
from ranker.index import (
    APPROXIMATE,
    KINDS,
    ExactIndex,
    IndexParameters,
    Kind,
    as_kind,
    build_index,
    choose_kind,
    load_index,
    measured_recall,
    native,
    save_index,
    stand_ins,
)
from ranker.types import Vectors

MakeVectors = Callable[..., Vectors]
AnyIndex = ExactIndex | native.FlatIndex | native.RefinedIndex
Built = dict[Kind, AnyIndex]
ROWS = 8_000


@pytest.fixture(scope="module")
def vectors(make_vectors: MakeVectors) -> Vectors:
    made = make_vectors(ROWS)
    made[4000:4050] = made[:50]
    return made


@pytest.fixture(scope="module")
def contexts(make_vectors: MakeVectors) -> Vectors:
    return make_vectors(200, seed=1)


@pytest.fixture(scope="module")
def built(vectors: Vectors) -> Built:
    return {kind: build_index(kind, vectors) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [None, 0.9, 0.6, 0.1, 0.0005])
def test_agrees_with_the_oracle(
    built: Built, vectors: Vectors, contexts: Vectors, kind: Kind, share: float | None
) -> None:
    allowed = None if share is None else np.random.default_rng(3).random(ROWS) < share
    truth = ExactIndex(vectors).search(contexts, 10, allowed)
    hits = built[kind].search(contexts, 10, allowed)
    assert hits.ids.shape == truth.ids.shape
    assert hits.scores.dtype == np.float32
    assert hits.ids.dtype == np.int64
    assert (hits.ids >= 0).all()
    assert (np.diff(hits.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in hits.ids.tolist())
    if allowed is not None:
        assert allowed[hits.ids].all()
    # Scores are true inner products, whatever the compression inside.
    products = (contexts @ vectors.T)[np.arange(200)[:, None], hits.ids]
    np.testing.assert_allclose(hits.scores, products, atol=1e-5)
    if kind in ("exact", "flat"):
        np.testing.assert_allclose(hits.scores, truth.scores, atol=1e-4)
    elif hits.ids.size:
        assert (hits.scores >= truth.scores[:, -1:] - 1e-5).mean() >= 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_finds_itself_and_its_duplicate(built: Built, vectors: Vectors, kind: Kind) -> None:
    hits = built[kind].search(vectors[:20], 2)
    assert hits.ids.tolist() == [[row, 4000 + row] for row in range(20)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 999, ROWS, ROWS + 1])
def test_any_k(built: Built, contexts: Vectors, kind: Kind, k: int) -> None:
    hits = built[kind].search(contexts[:2], k)
    assert hits.ids.shape == (2, min(k, ROWS))
    assert (hits.ids >= 0).all()
    assert all(len(set(row)) == len(row) for row in hits.ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_allowed_and_no_vectors_asked(built: Built, contexts: Vectors, kind: Kind) -> None:
    assert built[kind].search(contexts[:3], 5, np.zeros(ROWS, np.bool_)).ids.shape == (3, 0)
    assert built[kind].search(contexts[:0], 5).ids.shape == (0, 5)
    with pytest.raises(InputError, match="k must be at least 1"):
        built[kind].search(contexts, 0)


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw", "sq8"])
def test_a_single_row(kind: Kind) -> None:
    vectors = np.array([[0.6, 0.8]], np.float32)
    hits = build_index(kind, vectors).search(vectors, 10)
    assert hits.ids.tolist() == [[0]]
    np.testing.assert_allclose(hits.scores, [[1.0]], atol=1e-6)


def test_what_cannot_be_built(make_vectors: MakeVectors) -> None:
    with pytest.raises(InputError, match="ivfpq index needs 256"):
        build_index("ivfpq", make_vectors(10))
    with pytest.raises(InputError, match="even length"):
        build_index("ivfpq", make_vectors(500, dim=33))
    with pytest.raises(InputError, match="at least one vector"):
        build_index("hnsw", make_vectors(0))
    with pytest.raises(InputError, match="not finite"):
        build_index("exact", np.full((2, 4), np.inf, np.float32))
    with pytest.raises(InputError, match="float32"):
        build_index("exact", np.zeros((2, 4)))  # type: ignore[arg-type] # the point of the test


def test_searches_from_many_threads_agree(built: Built, vectors: Vectors, contexts: Vectors) -> None:
    masks = [np.random.default_rng(seed).random(ROWS) < 0.7 for seed in range(8)]
    searched: tuple[Kind, ...] = ("flat", "hnsw", "ivfpq")
    for kind in searched:
        index = built[kind]
        alone = [index.search(contexts, 10, mask).ids for mask in masks]
        with ThreadPoolExecutor(8) as threads:
            together = [hits.ids for hits in threads.map(index.search, [contexts] * 8, [10] * 8, masks)]
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(built: Built, contexts: Vectors, kind: Kind, tmp_path: Path) -> None:
    index = built[kind]
    files = save_index(index, tmp_path, "s1-")
    assert sorted(files) == sorted(tmp_path.iterdir())
    loaded = load_index(tmp_path, index.parameters, "s1-")
    assert type(loaded) is type(index)
    before, after = index.search(contexts, 10), loaded.search(contexts, 10)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)


def test_foreign_files_are_refused(built: Built, vectors: Vectors, tmp_path: Path) -> None:
    sq8 = built["sq8"]
    save_index(sq8, tmp_path)
    with pytest.raises(IntegrityError, match="does not hold the ivfpq index"):
        load_index(tmp_path, IndexParameters("ivfpq", lists=4, probes=4, refine=4))
    structure = tmp_path / "structure.faiss"
    structure.write_bytes(structure.read_bytes()[:1000])
    with pytest.raises(IntegrityError, match="no FAISS index"):
        load_index(tmp_path, IndexParameters("sq8", refine=4))
    structure.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        load_index(tmp_path, IndexParameters("sq8", refine=4))


def test_tuning_reaches_its_target_and_recall_is_by_value(
    built: Built, vectors: Vectors, contexts: Vectors
) -> None:
    assert measured_recall(built["exact"], vectors, contexts) == 1.0
    for kind in APPROXIMATE:
        assert measured_recall(built[kind], vectors, contexts) >= 0.95
    # An index that knows only half of the rows finds about half of the best.
    half = measured_recall(ExactIndex(vectors[: ROWS // 2]), vectors, contexts)
    assert 0.4 < half < 0.65
    np.testing.assert_allclose(np.linalg.norm(stand_ins(vectors), axis=1), 1, atol=1e-5)


def test_progress_reaches_the_end(vectors: Vectors) -> None:
    seen: list[tuple[int, int]] = []
    build_index("sq8", vectors, lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, ROWS)
    assert seen[-1] == (ROWS, ROWS)


def test_the_kind_follows_the_size() -> None:
    assert choose_kind(500, 384)[0] == "exact"
    assert choose_kind(200_000, 384)[0] == "ivfpq"
    assert choose_kind(200_000, 99)[0] == "hnsw"
    for count in (1, 10**5, 10**6):
        assert f"{count:,}" in choose_kind(count, 384)[1]
    with pytest.raises(NotFoundError, match="Did you mean 'hnsw'"):
        as_kind("hsnw")


def test_the_exact_path_does_not_import_faiss() -> None:
    code = (
        "import sys, numpy as np; from ranker.index import build_index;"
        "v = np.eye(3, dtype='f');"
        "assert build_index('exact', v).search(v, 1).ids.tolist() == [[0], [1], [2]];"
        "assert 'faiss' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
