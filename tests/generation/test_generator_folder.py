"""Generators on disk: written whole, read only as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.generation import GenerationSettings, installed, load_generator
from ranker.generation.folder import MANIFEST, Figure, GeneratorFolder, Manifest, kind_of, write_generator
from ranker.home import Home

ABOUT = Manifest("toy", "nothing", "MIT", (Figure("valid_perplexity", 12.5),))


def fill(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "numbers.bin").write_bytes(b"\0\1\2")
    (folder / "settings.json").write_text("{}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_generator(tmp_path / "toy", ABOUT, fill)
    return tmp_path / "toy"


def test_round_trip(root: Path) -> None:
    opened = GeneratorFolder.open(root, "toy")
    assert (opened.manifest.origin, opened.manifest.licence) == ("nothing", "MIT")
    assert opened.manifest.figures == ABOUT.figures
    assert [(stamp.name, stamp.size) for stamp in opened.manifest.files] == [
        ("deep/numbers.bin", 3),
        ("settings.json", 2),
    ]
    assert opened.read("deep/numbers.bin") == b"\0\1\2"
    assert opened.checked("settings.json") == opened.path / "settings.json"
    assert kind_of(root) == "toy"


def test_fingerprint_is_of_kind_and_files(root: Path, tmp_path: Path) -> None:
    before = GeneratorFolder.open(root, "toy").manifest.fingerprint
    again = write_generator(root, Manifest("toy", "elsewhere", "MIT"), fill)
    assert again.manifest.fingerprint == before
    other = write_generator(root, ABOUT, lambda folder: (folder / "a").write_text("b"))
    assert other.manifest.fingerprint != before


def test_a_failed_write_leaves_the_old_version(root: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_generator(root, ABOUT, fail)
    assert GeneratorFolder.open(root, "toy").read("settings.json") == b"{}"
    assert len(list(root.glob("v-*"))) == 1


@pytest.mark.parametrize("damage", [b"\0\1\3", b"\0\1", b"", None])
def test_a_damaged_file_is_never_parsed(root: Path, damage: bytes | None) -> None:
    opened = GeneratorFolder.open(root, "toy")
    path = opened.path / "deep" / "numbers.bin"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    for read in (opened.read, opened.checked):
        with pytest.raises(IntegrityError, match=r"numbers\.bin.*again"):
            read("deep/numbers.bin")


def test_manifests_that_lie(root: Path) -> None:
    path = GeneratorFolder.open(root, "toy").path / MANIFEST
    whole = json.loads(path.read_text())
    with pytest.raises(IntegrityError, match="kind 'toy'"):
        GeneratorFolder.open(root, "chat")
    with pytest.raises(IntegrityError, match="no file 'absent'"):
        GeneratorFolder.open(root, "toy").read("absent")
    for change in (
        {"format": 9},
        {"unknown": 1},
        {"files": [{"name": "../../x", "sha256": "", "size": 1}]},
        {"files": [{"name": "/etc/hosts", "sha256": "", "size": 1}]},
        {"kind": 3},
    ):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(IntegrityError):
            GeneratorFolder.open(root, "toy")
    path.write_text("{")
    with pytest.raises(IntegrityError):
        kind_of(root)


def test_missing_generators_are_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(NotFoundError, match="ranker train-generator seq2seq"):
        load_generator("seq2seq", home)
    with pytest.raises(NotFoundError, match="Did you mean 'seq2seq'"):
        load_generator("seq2sec", home)
    write_generator(home.generators / "odd", ABOUT, fill)
    with pytest.raises(NotFoundError, match="kind of generator called 'toy'"):
        load_generator("odd", home)
    assert "odd" not in installed(home)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_seconds": 0.0},
        {"max_tokens": 0},
        {"beams": 6, "groups": 4},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"temperature": 0.0},
        {"top_k": -1},
        {"seed": -1},
        {"max_seconds": float("nan")},
    ],
)
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        GenerationSettings(**wrong)  # type: ignore[arg-type] # values of several types
