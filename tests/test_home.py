"""Where the home is, and what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker import home
from ranker.errors import ConfigError
from ranker.home import Home


def test_the_order_of_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKER_HOME", str(tmp_path / "environment"))
    assert Home.find(tmp_path / "flag").root == tmp_path / "flag"
    assert Home.find().root == tmp_path / "environment"
    monkeypatch.setenv("RANKER_HOME", "")
    clone = Path(home.__file__).resolve().parents[1]
    assert Home.find().root == clone
    monkeypatch.setattr(home, "_clone", lambda: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.find().root.name == "ranker"
    assert Home.find().root.is_relative_to(tmp_path)


def test_a_home_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.find("here").root == tmp_path / "here"
    assert Home.find("~/there").root == tmp_path / "there"
    with pytest.raises(ConfigError, match="unknown user"):
        Home.find("~no-such-user-at-all/x")


def test_the_parts_of_a_home(tmp_path: Path) -> None:
    found = Home(tmp_path)
    assert found.pools == tmp_path / "candidate_pools"
    assert found.indexes == tmp_path / "indexes"
    assert found.models == tmp_path / "models"
    assert found.runs == tmp_path / "runs"
    assert found.config_file == tmp_path / "ranker.toml"
    assert not list(tmp_path.iterdir()), "a home is made only when something is put into it"


def test_the_packaged_pools_are_there() -> None:
    assert home.packaged_pools().is_dir()
