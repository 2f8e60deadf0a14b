"""Files and folders appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from ranker import storage
from ranker.errors import IntegrityError, StorageError


def test_bytes_and_json_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file.json"
    storage.write_json(path, {"text": "ça 🙂", "n": [1, 2.5, None]})
    assert storage.read_json(path) == {"text": "ça 🙂", "n": [1, 2.5, None]}
    assert "ça 🙂" in path.read_text("utf-8")
    storage.write_bytes(path, b"other")
    assert path.read_bytes() == b"other"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    storage.write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StorageError, match=r"the disk is full, writing .*file; .* unchanged\. Free some space"
    ):
        storage.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EFBIG, "the disk is full"),
        (errno.EACCES, "no permission to write"),
        (errno.EROFS, r"no permission to write .* --home"),
        (errno.EIO, "cannot use .*: Input/output error"),
    ],
)
def test_the_systems_complaints_become_one_line(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(StorageError, match=message) as caught, storage.storage_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"", b"[" * 200_000])
def test_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(IntegrityError, match="is missing"):
        storage.read_json(path)
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match="not readable JSON"):
        storage.read_json(path)


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom((1 << 20) + 17)
    path.write_bytes(data)
    assert storage.sha256_of(path) == hashlib.sha256(data).hexdigest()
    path.write_bytes(b"")
    assert storage.sha256_of(path) == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (0, 4)])
def test_arrays_round_trip(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    path = tmp_path / "array.npy"
    storage.write_array(path, array)
    np.testing.assert_array_equal(np.load(path), array)
    mapped = storage.map_array(path, np.float32, ndim=len(shape))
    np.testing.assert_array_equal(mapped, array)
    assert type(mapped) is np.ndarray
    assert not mapped.flags.writeable
    with pytest.raises(IntegrityError, match=r"holds .*float32, not .*int64"):
        storage.map_array(path, np.int64, ndim=len(shape))


def test_arrays_that_are_large_sliced_or_no_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_CHUNK", 64)
    path = tmp_path / "array.npy"
    array = np.arange(1000, dtype=np.int64).reshape(50, 20)[:, ::2]
    storage.write_array(path, array)
    np.testing.assert_array_equal(np.load(path), array)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(IntegrityError, match="not a readable array"):
        storage.map_array(path, np.int64, ndim=2)
    path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="not a readable array"):
        storage.map_array(path, np.int64, ndim=2)
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(IntegrityError, match="not a readable array"):
        storage.map_array(path, np.int64, ndim=1)
    with pytest.raises(IntegrityError, match="missing"):
        storage.map_array(tmp_path / "none.npy", np.int64, ndim=1)


def _publish(root: Path, text: str) -> Path:
    with storage.staged_folder(root) as staged:
        (staged / "file").write_text(text)
        return storage.publish(staged, root)


def test_publishing_replaces_the_version(tmp_path: Path) -> None:
    root = tmp_path / "thing"
    assert storage.current(root) is None
    assert not storage.is_published(root)
    first = _publish(root, "one")
    assert storage.current(root) == first
    assert storage.is_published(root)
    second = _publish(root, "two")
    assert storage.current(root) == second != first
    assert (second / "file").read_text() == "two"
    assert sorted(entry.name for entry in root.iterdir()) == sorted(["CURRENT", second.name])


def test_staging_is_cleared_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyError), storage.staged_folder(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    dead = tmp_path / f".staging-{2**22 + 1}-aa"  # beyond the largest process number
    absurd = tmp_path / f".staging-{10**30}-aa"
    alive = tmp_path / f".staging-{os.getpid()}-aa"
    for folder in (dead, absurd, alive):
        folder.mkdir()
    with storage.staged_folder(tmp_path):
        assert not dead.exists()
        assert not absurd.exists()
        assert alive.exists()


@pytest.mark.parametrize("pointer", ["", "v-", "v-00ff", "../x", "v-../..", "/etc", "v-\0", "\udcff"])
def test_a_pointer_that_leads_nowhere(tmp_path: Path, pointer: str) -> None:
    (tmp_path / "CURRENT").write_bytes(pointer.encode("utf-8", "surrogateescape"))
    with pytest.raises(IntegrityError, match="names no version"):
        storage.current(tmp_path)


def test_a_pointer_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").mkdir()
    with pytest.raises(IntegrityError, match="cannot be read"):
        storage.current(tmp_path)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert storage.current(path) is None
    with pytest.raises(StorageError, match="cannot use"), storage.staged_folder(path):
        pass
    with pytest.raises(StorageError, match="cannot use"), storage.exclusive(path / "thing", "writing"):
        pass


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    root = tmp_path / "indexes" / "ed"
    message = "another process is building 'ed' right now"
    with (
        storage.exclusive(root, "building"),
        pytest.raises(StorageError, match=message),
        storage.exclusive(root, "building"),
    ):
        pass
    with storage.exclusive(root, "building"):
        pass
    with pytest.raises(KeyError), storage.exclusive(root, "building"):
        raise KeyError
    with storage.exclusive(root, "building"):
        pass


def test_a_checked_file_is_as_written(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert storage.read_checked(path, size=7, sha256=digest) == b"weights"
    with pytest.raises(IntegrityError, match="has 7 bytes, not 8"):
        storage.read_checked(path, size=8, sha256=digest)
    path.write_bytes(b"weighty")
    with pytest.raises(IntegrityError, match=r"does not match its sha256\. Train it again"):
        storage.read_checked(path, size=7, sha256=digest, fix="Train it again")
    path.unlink()
    with pytest.raises(IntegrityError, match="cannot be read"):
        storage.read_checked(path, size=7, sha256=digest)


def test_a_model_replaces_the_one_before(tmp_path: Path) -> None:
    storage.write_model_files(tmp_path, {"kind": "old"}, {"a": np.zeros(2, np.float32)})
    storage.write_model_files(tmp_path, {"kind": "new"}, {"a": np.arange(3, dtype=np.float32)[::-1]})
    manifest = storage.read_json(tmp_path / storage.MANIFEST)
    assert manifest["kind"] == "new"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([manifest["file"], storage.MANIFEST])
    found = storage.read_safetensors(
        tmp_path / manifest["file"], size=manifest["size"], sha256=manifest["sha256"]
    )
    assert found["a"].tolist() == [2.0, 1.0, 0.0]


def test_bytes_as_written_that_are_no_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "numbers.safetensors"
    path.write_bytes(b"not numbers")
    digest = storage.sha256_of(path)
    with pytest.raises(IntegrityError, match=r"not a readable safetensors file .*Train it again"):
        storage.read_safetensors(path, size=11, sha256=digest, fix="Train it again")
