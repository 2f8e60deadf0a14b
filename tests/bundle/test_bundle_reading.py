"""What was written comes back, by value, and what was damaged is refused before it is parsed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ranker.bundle import Bundle, PoolNote, manifest
from ranker.bundle.manifest import MANIFEST
from ranker.errors import InputError, IntegrityError, MismatchError, NotFoundError
from ranker.index import KINDS, ExactIndex
from ranker.storage import sha256_of
from ranker.types import Candidate, Vectors

Write = Callable[..., Bundle]
MakeCandidates = Callable[..., list[Candidate]]
MakeVectors = Callable[..., Vectors]


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_round_trip(
    write: Write,
    root: Path,
    make_candidates: MakeCandidates,
    make_vectors: MakeVectors,
    pools: Sequence[PoolNote],
    kind: str | None,
) -> None:
    write(300, kind)
    bundle = Bundle.open(root, fingerprint="hashing-16")
    candidates, vectors = make_candidates(300), make_vectors(300)
    assert [bundle.candidate(row) for row in range(300)] == candidates
    np.testing.assert_array_equal(bundle.vectors(range(300)), vectors)
    assert bundle.vectors([7, 3, 7]).tolist() == vectors[[7, 3, 7]].tolist()
    assert (bundle.count, bundle.rows, bundle.dim) == (300, 300, 16)
    hits, truth = bundle.search(vectors[:20], 5), ExactIndex(vectors).search(vectors[:20], 5)
    np.testing.assert_array_equal(hits.ids, truth.ids)
    np.testing.assert_array_equal(hits.scores, truth.scores)
    segment = bundle.manifest.segments[0]
    assert segment.index.kind == (kind or "exact")
    assert segment.recall == 1.0
    assert bundle.manifest.pools == pools
    assert bundle.manifest.encoder_name == "hashing"
    for row in (-1, 300):
        with pytest.raises(IndexError):
            bundle.candidate(row)
        with pytest.raises(IndexError):
            bundle.vectors([row])


def test_rows_by_id_and_text(write: Write) -> None:
    bundle = write(50)
    assert bundle.rows_of(["c9", "c4", "nothing"]) == [4, 9]
    assert bundle.rows_of_texts(["Reply number 7", "Reply number"]) == [7]
    assert bundle.rows_of([]) == []


def test_masks(write: Write, make_vectors: MakeVectors) -> None:
    bundle = write(12)

    def rows(found: object) -> list[int]:
        assert isinstance(found, np.ndarray)
        return [int(row) for row in np.flatnonzero(found)]

    assert bundle.mask() is None
    assert bundle.mask(pools=["ed", "own"]) is None
    assert rows(bundle.mask(pools=["ed"])) == [0, 2, 4, 6, 8, 10]
    assert rows(bundle.mask(emotions=["sad", "angry"])) == [2, 4, 8, 10]
    assert rows(bundle.mask(emotions={"sad"}, topics={"work"})) == [4, 10]
    assert rows(bundle.mask(intents=["agreeing"])) == [1, 3, 5, 7, 9, 11]
    assert rows(bundle.mask(licences=["CC0-1.0"])) == [1, 3, 5, 7, 9, 11]
    assert rows(bundle.mask(commercial_only=True)) == [1, 3, 5, 7, 9, 11]
    assert rows(bundle.mask(commercial_only=True, pools=["ed"])) == []
    assert rows(bundle.mask(emotions=["unheard of"])) == []
    assert bundle.labels("emotion") == ("angry", "joyful", "sad")
    assert bundle.labels("intent") == ("agreeing",)
    hits = bundle.search(make_vectors(1), 10, bundle.mask(emotions=["sad"]))
    assert sorted(hits.ids[0].tolist()) == [4, 10]


def _files(root: Path) -> list[Path]:
    (version,) = root.glob("v-*")
    return sorted(version.iterdir())


def test_every_damage_to_every_file_is_refused(write: Write, root: Path) -> None:
    write(300, "sq8")
    files = _files(root)
    assert len(files) == 7
    for path in files:
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        neighbour = files[files.index(path) - 1].read_bytes()
        for damaged in (whole[:-2], whole[: len(whole) // 2], b"", bytes(flipped), whole + b"\0", neighbour):
            path.write_bytes(damaged)
            with pytest.raises(IntegrityError, match="ranker build-index --pool ed") as caught:
                Bundle.open(root)
            assert "\n" not in str(caught.value)
        path.unlink()
        with pytest.raises(IntegrityError, match="missing"):
            Bundle.open(root)
        path.write_bytes(whole)
    assert Bundle.open(root).count == 300


def test_no_parser_sees_a_damaged_file(write: Write, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(300, "sq8")
    path = next(path for path in _files(root) if path.suffix == ".faiss")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    def parsed(*_: object) -> None:
        pytest.fail("the files were parsed before they were verified")

    monkeypatch.setattr(Bundle, "__init__", parsed)
    with pytest.raises(IntegrityError, match="have changed"):
        Bundle.open(root)


def _edit(root: Path, **changes: object) -> None:
    path = next(path for path in _files(root) if path.name == MANIFEST)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_manifests_of_another_kind(write: Write, root: Path) -> None:
    write(5)
    _edit(root, format=99)
    with pytest.raises(IntegrityError, match="format 99, of a newer version"):
        Bundle.open(root)
    _edit(root, format="one")
    with pytest.raises(IntegrityError, match="not the manifest of an index"):
        Bundle.open(root)
    _edit(root, format=1, encoder_name="another")
    with pytest.raises(IntegrityError, match="does not match its seal"):
        Bundle.open(root)
    next(path for path in _files(root) if path.name == MANIFEST).write_text("[" * 100_000)
    with pytest.raises(IntegrityError, match="not readable JSON"):
        Bundle.open(root)


def test_another_encoder_is_refused(write: Write, root: Path) -> None:
    bundle = write(5)
    bundle.require_encoder("hashing-16")
    message = r"made by the encoder 'hashing' .*Rebuild it: ranker build-index --pool ed --pool own"
    with pytest.raises(MismatchError, match=message):
        bundle.require_encoder("minilm-1")
    with pytest.raises(MismatchError, match=message):
        Bundle.open(root, fingerprint="minilm-1")


def test_nothing_there(tmp_path: Path, write: Write, root: Path) -> None:
    with pytest.raises(NotFoundError, match="ranker build-index --pool ed"):
        Bundle.open(root)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFoundError, match="no index at"):
        Bundle.open(tmp_path / "file")
    write(5)
    (root / "CURRENT").write_text("v-../../elsewhere\n")
    with pytest.raises(IntegrityError, match="names no version"):
        Bundle.open(root)


def test_a_bare_version_folder_opens(write: Write, make_candidates: MakeCandidates, tmp_path: Path) -> None:
    write(5).folder.rename(tmp_path / "embedded")
    assert Bundle.open(tmp_path / "embedded").candidate(3) == make_candidates(5)[3]


def test_large_bundles_are_hashed_once(write: Write, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_ALWAYS_HASHED", 0)
    hashed: list[str] = []

    def noted(path: Path) -> str:
        hashed.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(manifest, "sha256_of", noted)
    write(300, "sq8")
    files = [path for path in _files(root) if path.name != MANIFEST]
    hour_ago = time.time_ns() - 3600 * 10**9

    hashed.clear()
    Bundle.open(root)  # written a moment ago: a time stamp that young proves nothing
    Bundle.open(root)
    assert len(hashed) == 2 * len(files)

    for path in files:
        os.utime(path, ns=(hour_ago, hour_ago))
    hashed.clear()
    Bundle.open(root)
    assert len(hashed) == len(files)
    Bundle.open(root)
    assert len(hashed) == len(files)
    Bundle.open(root, verify="full")
    assert len(hashed) == 2 * len(files)

    flipped = bytearray(files[0].read_bytes())
    flipped[-2] ^= 1
    files[0].write_bytes(flipped)
    with pytest.raises(IntegrityError, match="have changed"):
        Bundle.open(root)
    (root / ".verified.json").write_text("nonsense")
    with pytest.raises(IntegrityError, match="have changed"):
        Bundle.open(root)


def test_a_large_bundle_opens_at_once(root: Path, write: Write) -> None:
    """200,000 candidates, written as files of that size; the index itself is beside the point."""
    bundle = write(2)
    rows = 200_000
    prefix = bundle.manifest.segments[0].prefix
    line = (bundle.folder / f"{prefix}candidates.jsonl").read_bytes().splitlines(keepends=True)[0]
    (bundle.folder / f"{prefix}candidates.jsonl").write_bytes(line * rows)
    arrays: dict[str, NDArray[Any]] = {
        "offsets": np.arange(rows + 1) * len(line),
        "columns": np.zeros((4, rows), np.int16),
        "keys": np.zeros((2, rows), np.uint64),
        "vectors": np.zeros((rows, 16), np.float32),
    }
    for name, array in arrays.items():
        np.save(bundle.folder / f"{prefix}{name}.npy", array)
    segment = replace(bundle.manifest.segments[0], count=rows)
    large = replace(
        bundle.manifest, count=rows, segments=(segment,), files=manifest.file_notes(bundle.folder)
    )
    manifest.write_manifest(bundle.folder, large)
    Bundle.open(root)
    started = time.perf_counter()
    opened = Bundle(bundle.folder, manifest.read_manifest(bundle.folder, "ed"))
    last = opened.candidate(rows - 1)
    taken = time.perf_counter() - started
    assert last.id == "c0"
    assert taken < 0.2


def test_bad_k(write: Write, make_vectors: MakeVectors) -> None:
    bundle = write(5)
    with pytest.raises(InputError, match="k must be at least 1"):
        bundle.search(make_vectors(1), 0)
    assert bundle.search(make_vectors(1), 100).ids.shape == (1, 5)
