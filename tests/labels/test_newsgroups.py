from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ranker.errors import CorpusError
from ranker.labels.newsgroups import read_newsgroups, strip_post

POST = """From: someone@somewhere
Subject: Re: engines

In article <1@x> other@somewhere writes:
> Is the old engine any good?

I would keep the old engine.
It caf\xe9 runs well.

--
Someone, Somewhere
"""
POSTS = {
    "20news-bydate-train/rec.autos/2": POST,
    "20news-bydate-train/sci.space/1": "Subject: orbit\n\nThe orbit is low.",
    "20news-bydate-train/sci.space/3": "Subject: nothing\n\n> only a quote",
    "20news-bydate-train/not.a.group/4": "Subject: x\n\nelsewhere",
    "20news-bydate-test/sci.space/9": "Subject: test\n\nThe launch is late.",
}


def archive(folder: Path) -> Path:
    path = folder / "20news-bydate.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, text in POSTS.items():
            data = text.encode("latin-1")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return path


def test_only_what_the_writer_says_is_kept() -> None:
    assert strip_post(POST) == "I would keep the old engine. It caf\xe9 runs well."
    assert strip_post("no header end") == ""


def test_archive_and_unpacked_folder_read_alike(tmp_path: Path) -> None:
    path = archive(tmp_path)
    train = [("I would keep the old engine. It café runs well.", "cars"), ("The orbit is low.", "space")]
    assert read_newsgroups(path, "train") == train
    assert read_newsgroups(tmp_path, "train") == train
    unpacked = tmp_path / "unpacked"
    for name, text in POSTS.items():
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_bytes(text.encode("latin-1"))
    assert read_newsgroups(unpacked, "train") == train
    assert read_newsgroups(path, "test") == [("The launch is late.", "space")]


def test_bad_data_is_one_line(tmp_path: Path) -> None:
    path = archive(tmp_path)
    with pytest.raises(CorpusError, match="no split"):
        read_newsgroups(path, "valid")
    with pytest.raises(CorpusError, match="there is no"):
        read_newsgroups(tmp_path / "none.tar.gz", "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="holds no 20 Newsgroups"):
        read_newsgroups(tmp_path / "empty", "train")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorpusError, match="not a readable"):
        read_newsgroups(path, "train")
