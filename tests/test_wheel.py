"""The wheel, installed in a new virtual environment and run in an empty folder, answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return next(target.glob("*.whl"))


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"ranker"}
    for needed in (
        "ranker/py.typed",
        "ranker/embedded/encoder/model.onnx",
        "ranker/embedded/indexes/ed/CURRENT",
        "ranker/presets/mini.toml",
        "ranker/candidate_pools/ed/pool.toml",
        "ranker/candidate_pools/ed/sample/train.csv",
        "ranker/candidate_pools/dailydialog/sample/train/dialogues_train.txt",
        "ranker/candidate_pools/reddit/sample/pairs.tsv",
    ):
        assert needed in names
    unwanted = [name for name in names if "/raw/" in name or "__pycache__" in name or name.endswith(".lock")]
    assert unwanted == []
    assert wheel.stat().st_size < 40e6


def test_answers_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """The runtime's dependencies are borrowed from this environment, the package is the wheel's own."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    site = next(place.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    borrowed = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "RANKER_HOME": "", "XDG_DATA_HOME": str(tmp_path / "data")}
    command = [str(place / "bin" / "python"), "-m", "ranker", "query", "I finally got promoted at work!"]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["ranking"]) == 5
    assert list(empty.iterdir()) == []
