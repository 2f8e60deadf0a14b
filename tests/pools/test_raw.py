"""Raw data: the sample, the full corpus, importing and replacing it."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from ranker.errors import CorpusError, InputError, IntegrityError, NotFoundError, StorageError
from ranker.home import Home
from ranker.pools import PoolCard, create_card, import_raw, load_card, raw_data
from ranker.pools.archives import UnpackLimits, unpack
from ranker.storage import exclusive


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def ed(home: Home) -> PoolCard:
    return load_card("ed", home)


def needs_train(folder: Path) -> None:
    if not list(folder.rglob("train.csv")):
        raise CorpusError(f"{folder} holds no train.csv")


def tar_of(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/") + ".csv")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


class TestRawData:
    def test_the_sample_until_the_home_has_the_corpus(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        assert raw_data(ed, home).is_sample
        (tmp_path / "train.csv").write_text("x")
        import_raw(ed, tmp_path / "train.csv", home, validate=needs_train)
        assert not raw_data(ed, home).is_sample
        assert raw_data(ed, home, sample=True).is_sample

    def test_files_put_into_raw_by_hand_are_used(self, home: Home, ed: PoolCard) -> None:
        raw = home.pools / "ed" / "raw"
        raw.mkdir(parents=True)
        assert raw_data(ed, home).is_sample
        (raw / "train.csv").write_text("x")
        assert raw_data(ed, home).path == raw

    def test_neither(self, home: Home) -> None:
        with pytest.raises(NotFoundError, match="ranker import mine PATH"):
            raw_data(create_card(home, "mine"), home)


class TestImport:
    def test_folder_file_and_archives(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        folder = tmp_path / "corpus"
        folder.mkdir()
        (folder / "train.csv").write_text("folder")
        (folder / ".hidden").write_text("no")
        zipped = tmp_path / "corpus.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            archive.writestr("train.csv", "zip")
            archive.writestr("__MACOSX/._train.csv", "junk")
        for source, text in [
            (folder, "folder"),
            (folder / "train.csv", "folder"),
            (zipped, "zip"),
            (tar_of(tmp_path / "corpus.tgz", inner__train="tar"), "tar"),
        ]:
            found = import_raw(ed, source, home, validate=needs_train)
            assert raw_data(ed, home).path == found
            assert [file.read_text() for file in found.rglob("*") if file.is_file()] == [text]

    def test_archives_inside_the_archive_are_unpacked_too(
        self, home: Home, ed: PoolCard, tmp_path: Path
    ) -> None:
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("train/train.csv", "deep")
        outer = tmp_path / "outer.zip"
        with zipfile.ZipFile(outer, "w") as archive:
            archive.writestr("corpus/train.zip", inner.getvalue())
        found = import_raw(ed, outer, home, validate=needs_train)
        assert [str(file.relative_to(found)) for file in found.rglob("*.*")] == ["corpus/train/train.csv"]

    def test_what_does_not_fit_leaves_the_old_data(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text("good")
        (tmp_path / "other.csv").write_text("bad")
        empty = tmp_path / "empty"
        empty.mkdir()
        old = import_raw(ed, tmp_path / "train.csv", home, validate=needs_train)
        for source in (tmp_path / "other.csv", empty, tar_of(tmp_path / "x.tgz", other="bad")):
            with pytest.raises(CorpusError):
                import_raw(ed, source, home, validate=needs_train)
        assert raw_data(ed, home).path == old
        assert (old / "train.csv").read_text() == "good"
        assert sorted(entry.name for entry in (home.pools / "ed").iterdir()) == ["raw"]

    def test_a_path_that_is_not_there(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="nowhere"):
            import_raw(ed, tmp_path / "nowhere", home, validate=needs_train)

    def test_a_folder_that_contains_the_home(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="contains the home"):
            import_raw(ed, tmp_path, home, validate=lambda folder: None)

    def test_two_at_once(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text("x")
        with (
            exclusive(home.pools / "ed", "importing"),
            pytest.raises(StorageError, match="importing 'ed' right now"),
        ):
            import_raw(ed, tmp_path / "train.csv", home, validate=needs_train)

    def test_a_home_that_cannot_be_a_folder(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text("x")
        home.root.write_text("a file")
        with pytest.raises(StorageError, match="cannot use"):
            import_raw(ed, tmp_path / "train.csv", home, validate=needs_train)

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_home(self, home: Home, ed: PoolCard, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text("x")
        home.root.mkdir()
        home.root.chmod(0o500)
        with pytest.raises(StorageError, match="no permission"):
            import_raw(ed, tmp_path / "train.csv", home, validate=needs_train)


class TestUnsafeArchives:
    @pytest.mark.parametrize(
        "name", ["../evil.csv", "a/../../evil.csv", "/evil.csv", "..\\evil.csv", "C:\\evil.csv"]
    )
    def test_paths_that_lead_outside(self, tmp_path: Path, name: str) -> None:
        zipped = tmp_path / "evil.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            archive.writestr(name, "x")
        tarred = tmp_path / "evil.tar"
        with tarfile.open(tarred, "w") as tar:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        for archive_path in (zipped, tarred):
            into = tmp_path / f"out-{archive_path.suffix}"
            into.mkdir()
            with pytest.raises(IntegrityError, match="leads outside"):
                unpack(archive_path, into)
            assert list(into.rglob("*")) == []

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_links_and_devices(self, tmp_path: Path, kind: bytes) -> None:
        path = tmp_path / "evil.tar"
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("train.csv")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        (tmp_path / "out").mkdir()
        with pytest.raises(IntegrityError, match="link or a device"):
            unpack(path, tmp_path / "out")

    def test_a_link_in_a_zip(self, tmp_path: Path) -> None:
        path = tmp_path / "evil.zip"
        info = zipfile.ZipInfo("train.csv")
        info.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(info, "/etc/passwd")
        (tmp_path / "out").mkdir()
        with pytest.raises(IntegrityError, match="link or a device"):
            unpack(path, tmp_path / "out")

    def test_bombs(self, tmp_path: Path) -> None:
        path = tmp_path / "bomb.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", b"\0" * 5_000_000)
            archive.writestr("more", b"")
        for number, limits in enumerate((UnpackLimits(total_bytes=1_000_000), UnpackLimits(files=1))):
            into = tmp_path / f"out{number}"
            into.mkdir()
            with pytest.raises(IntegrityError, match=r"more than is sane|too many files"):
                unpack(path, into, limits)

    @pytest.mark.parametrize("cut", [0.3, 0.9])
    def test_truncated(self, tmp_path: Path, cut: float) -> None:
        tarred = tar_of(tmp_path / "whole.tgz", train=os.urandom(50_000).hex())
        data = tarred.read_bytes()
        broken = tmp_path / "broken.tgz"
        broken.write_bytes(data[: int(len(data) * cut)])
        (tmp_path / "out").mkdir()
        with pytest.raises(IntegrityError, match="damaged"):
            unpack(broken, tmp_path / "out")
