"""Adding and removing by value; and whatever goes wrong while writing, the old bundle answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ranker.bundle import Bundle, PoolNote, add_candidates, remove_candidates, write_bundle, writer
from ranker.errors import InputError, MismatchError, NotFoundError, StorageError
from ranker.index import ExactIndex
from ranker.storage import exclusive
from ranker.types import Candidate, Vectors

Write = Callable[..., Bundle]
MakeCandidates = Callable[..., list[Candidate]]
MakeVectors = Callable[..., Vectors]

CHILD = """
import sys
from pathlib import Path
import numpy as np
from ranker.bundle import PoolNote, write_bundle
from ranker.types import Candidate

root, rows = Path(sys.argv[1]), int(sys.argv[2])
vectors = np.random.default_rng(1).standard_normal((rows, 16)).astype(np.float32)
print("ready", flush=True)
write_bundle(
    root,
    name="ed",
    candidates=[Candidate(f"n{row}", f"New reply {row}", "ed") for row in range(rows)],
    vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
    encoder_name="hashing",
    encoder_fingerprint="hashing-16",
    pools=[PoolNote("ed", "Empathetic", "CC0-1.0", True, True)],
    kind="sq8",
)
print("done", flush=True)
"""


def _answers(bundle: Bundle, candidates: Sequence[Candidate], vectors: Vectors) -> None:
    """The bundle holds exactly these, and finds them as exact search over them does."""
    rows = [int(row) for row in bundle.kept_rows()]
    assert bundle.count == len(candidates) == len(rows)
    assert [bundle.candidate(row) for row in rows] == list(candidates)
    np.testing.assert_array_equal(bundle.vectors(rows), vectors)
    hits = bundle.search(vectors[:10], 7)
    truth = ExactIndex(vectors).search(vectors[:10], 7)
    np.testing.assert_array_equal(hits.scores, truth.scores)
    np.testing.assert_array_equal(hits.ids, np.array(rows)[truth.ids])


def test_add_and_remove_by_value(
    write: Write, root: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors
) -> None:
    write(100)
    candidates, vectors = make_candidates(100), make_vectors(100)
    for step in range(12):  # more than _MAX_SEGMENTS, so that small segments are merged on the way
        more = make_candidates(3, start=100 + 3 * step)
        more_vectors = make_vectors(3, seed=50 + step)
        bundle = add_candidates(root, more, more_vectors, encoder_fingerprint="hashing-16")
        candidates, vectors = candidates + more, np.vstack((vectors, more_vectors))
        _answers(bundle, candidates, vectors)
        assert len(bundle.segments) <= writer._MAX_SEGMENTS

        gone = {candidates[5].id, candidates[-1].id}
        bundle = remove_candidates(root, ids=[candidates[5].id], texts=[candidates[-1].text])
        kept = [place for place, candidate in enumerate(candidates) if candidate.id not in gone]
        candidates, vectors = [candidates[place] for place in kept], vectors[kept]
        _answers(bundle, candidates, vectors)
        assert bundle.rows_of(gone) == []
        mask = bundle.mask(pools=["own"])
        assert mask is not None
        found = bundle.search(vectors[:1], 1000, mask).ids[0]
        own = {candidate.id for candidate in candidates if candidate.pool == "own"}
        assert {bundle.candidate(int(row)).id for row in found} == own
    assert bundle.labels("emotion") == ("angry", "joyful", "sad")


def test_unchanged_files_are_shared(write: Write, root: Path, make_vectors: MakeVectors) -> None:
    first = write(100)
    inodes = {path.name: path.stat().st_ino for path in first.folder.iterdir()}
    added = add_candidates(
        root, [Candidate("x", "One more", "own")], make_vectors(1, seed=9), encoder_fingerprint="hashing-16"
    )
    prefix = first.manifest.segments[0].prefix
    shared = {path.name for path in added.folder.iterdir() if path.name.startswith(prefix)}
    assert len(shared) == 5
    assert all((added.folder / name).stat().st_ino == inodes[name] for name in shared)
    # A bundle that is open goes on with the version it opened.
    assert first.candidate(3).id == "c3"
    assert first.search(make_vectors(1), 1).ids.tolist() == [[0]]


def test_many_changes_make_one_index_again(
    write: Write,
    root: Path,
    make_candidates: MakeCandidates,
    make_vectors: MakeVectors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(100, "sq8")
    few = remove_candidates(root, ids=[f"c{row}" for row in range(10)])
    assert (few.rows, few.count, few.manifest.removed) == (100, 90, 10)
    many = remove_candidates(root, ids=[f"c{row}" for row in range(10, 40)])
    assert (many.rows, many.count, many.manifest.removed) == (60, 60, 0)
    _answers(many, make_candidates(100)[40:], make_vectors(100)[40:])
    monkeypatch.setattr(writer, "_SMALL_TAIL", 20)
    grown = add_candidates(
        root, make_candidates(30, start=200), make_vectors(30, seed=4), encoder_fingerprint="hashing-16"
    )
    assert len(grown.segments) == 1
    assert grown.manifest.segments[0].index.kind == "sq8"  # as it was asked for in the beginning
    _answers(
        grown,
        make_candidates(100)[40:] + make_candidates(30, start=200),
        np.vstack((make_vectors(100)[40:], make_vectors(30, seed=4))),
    )


def test_what_cannot_be_added_or_removed(
    write: Write, root: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors
) -> None:
    one = make_vectors(1)
    with pytest.raises(NotFoundError):
        add_candidates(root, make_candidates(1), one, encoder_fingerprint="hashing-16")
    write(10)
    with pytest.raises(InputError, match="already has a candidate 'c0'"):
        add_candidates(root, make_candidates(1), one, encoder_fingerprint="hashing-16")
    with pytest.raises(MismatchError):
        add_candidates(root, make_candidates(1, start=50), one, encoder_fingerprint="minilm")
    with pytest.raises(InputError, match="pool without a note: 'new'"):
        add_candidates(root, [Candidate("x", "y", "new")], one, encoder_fingerprint="hashing-16")
    with pytest.raises(InputError, match="8 dimensions, the index has 16"):
        add_candidates(
            root, make_candidates(1, start=50), make_vectors(1, dim=8), encoder_fingerprint="hashing-16"
        )
    with pytest.raises(InputError, match="has such an id or text"):
        remove_candidates(root, ids=["nothing"])
    with pytest.raises(InputError, match="remove every candidate"):
        remove_candidates(root, ids=[f"c{row}" for row in range(10)])
    _answers(Bundle.open(root), make_candidates(10), make_vectors(10))


def test_a_pool_can_be_added(write: Write, root: Path, make_vectors: MakeVectors) -> None:
    write(10)
    note = PoolNote("new", "New", "MIT", commercial_use=True, is_sample=False)
    bundle = add_candidates(
        root,
        [Candidate("x", "y", "new")],
        make_vectors(1, seed=3),
        encoder_fingerprint="hashing-16",
        pools=[note],
    )
    mask = bundle.mask(pools=["new"])
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == [10]


def test_what_cannot_be_written(
    root: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors, pools: Sequence[PoolNote]
) -> None:
    def write(candidates: list[Candidate], vectors: Vectors, kind: str | None = None) -> None:
        write_bundle(
            root,
            name="ed",
            candidates=candidates,
            vectors=vectors,
            encoder_name="hashing",
            encoder_fingerprint="hashing-16",
            pools=pools,
            kind=kind,
        )

    two, vectors = make_candidates(2), make_vectors(2)
    with pytest.raises(InputError, match="no candidates"):
        write([], vectors[:0])
    with pytest.raises(InputError, match="2 candidates need as many vectors"):
        write(two, vectors[:1])
    with pytest.raises(InputError, match="two candidates have the id 'c0'"):
        write([two[0], two[0]], vectors)
    with pytest.raises(InputError, match="lone surrogate"):
        write([replace(two[0], text="half \ud83d"), two[1]], vectors)
    with pytest.raises(NotFoundError, match="Did you mean 'hnsw'"):
        write(two, vectors, "hnws")
    with pytest.raises(InputError, match="not finite"):
        write(two, vectors * np.float32(np.nan))
    assert not list(root.glob("*"))


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.1, 0.25])
def test_a_killed_build_leaves_the_old_bundle(
    write: Write, root: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors, moment: float
) -> None:
    write(20)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), "60000"],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 20
        while not list(root.glob(".staging-*")) and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert list(root.glob(".staging-*")), "the child was not in the middle of its build"
    _answers(Bundle.open(root), make_candidates(20), make_vectors(20))
    # The next build is not in the way of what was left, and clears it away.
    write(5)
    assert not list(root.glob(".staging-*"))
    assert len(list(root.glob("v-*"))) == 1


@pytest.mark.parametrize("step", ["replace", "write_bytes", "rmtree"])
def test_a_crash_at_any_step_of_publishing(
    write: Write,
    root: Path,
    make_candidates: MakeCandidates,
    make_vectors: MakeVectors,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Before the pointer is written the old bundle answers, after it the new one; never neither."""

    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    write(20)
    with monkeypatch.context() as patched:
        if step == "replace":
            patched.setattr(Path, "replace", crash)
        elif step == "write_bytes":
            patched.setattr("ranker.storage.write_bytes", crash)
        else:
            patched.setattr("ranker.storage.shutil.rmtree", crash)
        with pytest.raises(Crash):
            write(30)
    count = 30 if step == "rmtree" else 20
    _answers(Bundle.open(root), make_candidates(count), make_vectors(count))
    write(40)
    assert len(list(root.glob("v-*"))) == 1


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, timeout=20, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=20, check=True)


def test_a_full_disk_leaves_the_old_bundle(
    tiny_disk: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors, pools: Sequence[PoolNote]
) -> None:
    root = tiny_disk / "ed"

    def write(count: int) -> None:
        write_bundle(
            root,
            name="ed",
            candidates=make_candidates(count),
            vectors=make_vectors(count),
            encoder_name="hashing",
            encoder_fingerprint="hashing-16",
            pools=pools,
        )

    write(20)
    for count in (5_500, 7_000, 9_000, 20_000):  # full at another file each time
        with pytest.raises(StorageError, match=r"the disk is full.*unchanged\. Free some space"):
            write(count)
        _answers(Bundle.open(root), make_candidates(20), make_vectors(20))
        assert not list(root.glob(".staging-*"))


def test_a_file_size_limit_leaves_the_old_bundle(
    write: Write, root: Path, make_candidates: MakeCandidates, make_vectors: MakeVectors
) -> None:
    """The same without root: the child may write no file beyond 200 kB."""
    write(20)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    child = subprocess.run(
        [sys.executable, "-c", limit + CHILD, str(root), "20000"], capture_output=True, text=True, timeout=60
    )
    assert child.returncode == 1
    assert "ranker.errors.StorageError: the disk is full" in child.stderr
    _answers(Bundle.open(root), make_candidates(20), make_vectors(20))
    assert not list(root.glob(".staging-*"))


def test_a_file_in_the_way(tmp_path: Path, write: Write, root: Path) -> None:
    root.parent.mkdir()
    root.write_text("not a folder")
    with pytest.raises(StorageError, match="cannot use"):
        write(5)
    assert root.read_text() == "not a folder"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(write: Write, root: Path) -> None:
    write(5)
    root.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="no permission to write"):
            write(6)
        assert Bundle.open(root).count == 5
    finally:
        root.chmod(0o700)


def test_two_writers_at_once(write: Write, root: Path, make_vectors: MakeVectors) -> None:
    write(20)
    message = r"another process is writing 'ed' right now\. Wait"
    with exclusive(root, "writing"):
        with pytest.raises(StorageError, match=message):
            write(5)
        with pytest.raises(StorageError, match=message):
            remove_candidates(root, ids=["c1"])
        with pytest.raises(StorageError, match=message):
            add_candidates(
                root, [Candidate("x", "y", "own")], make_vectors(1), encoder_fingerprint="hashing-16"
            )
        assert Bundle.open(root).count == 20  # readers need no lock
    assert write(5).count == 5


def test_a_second_process_is_refused(write: Write, root: Path) -> None:
    write(20)
    with exclusive(root, "writing"):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(root), "100"], capture_output=True, text=True, timeout=60
        )
    assert child.returncode == 1
    assert "StorageError: another process is writing 'ed' right now" in child.stderr


def test_readers_while_a_writer_replaces(write: Write, root: Path) -> None:
    """Whenever a reader opens, it gets a whole version: the last one or the one before."""
    write(20)
    counts: set[int] = set()
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                bundle = Bundle.open(root)
                counts.add(bundle.count)
                assert bundle.candidate(bundle.rows - 1).id == f"c{bundle.rows - 1}"
            except BaseException as error:  # shown by the assertion below
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for count in range(21, 41):
        write(count)
    stop.set()
    for reader in readers:
        reader.join(20)
    assert not failures
    assert counts <= set(range(20, 41))
    assert len(counts) > 1
