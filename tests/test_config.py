"""Flag > environment > file > default, and one-line errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from ranker.config import from_table, read_toml, settings
from ranker.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True)
class Search:
    k: int = 10
    threshold: float = 0.5
    mode: Literal["fast", "exact"] = "fast"
    level: Literal[1, 2] = 1
    pools: tuple[str, ...] = ()
    size: tuple[int, float] = (1, 1.0)
    folder: Path | None = None
    verbose: bool = False
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError("k must be at least 1")


@dataclass(frozen=True)
class Required:
    name: str


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ranker.toml"
    path.write_text('[search]\nk = 3\nthreshold = 1\npools = ["ed"]\n[search.inner]\ndepth = 4\n')
    return path


def test_the_order_of_sources(file: Path) -> None:
    assert settings(Search, "search", environ={}) == Search()
    assert settings(Search, "search", file=file.with_name("none.toml"), environ={}) == Search()
    from_file = settings(Search, "search", file=file, environ={})
    assert from_file == Search(k=3, threshold=1.0, pools=("ed",), inner=Inner(4))
    assert type(from_file.threshold) is float
    environ = {"RANKER_SEARCH_K": "4", "RANKER_SEARCH_MODE": "exact"}
    assert settings(Search, "search", file=file, environ=environ).k == 4
    found = settings(Search, "search", file=file, environ=environ, flags={"k": 5, "mode": None})
    assert (found.k, found.mode) == (5, "exact")


def test_the_environment_as_text() -> None:
    environ = {
        "RANKER_SEARCH_POOLS": '["ed", "own"]',
        "RANKER_SEARCH_FOLDER": "/somewhere",
        "RANKER_SEARCH_VERBOSE": "true",
        "RANKER_SEARCH_THRESHOLD": "1",
        "RANKER_SEARCH_SIZE": "[2, 3]",
    }
    found = settings(Search, "search", environ=environ)
    assert found == Search(
        pools=("ed", "own"), folder=Path("/somewhere"), verbose=True, threshold=1.0, size=(2, 3.0)
    )
    with pytest.raises(ConfigError, match="RANKER_SEARCH_K must be int, not 'many'"):
        settings(Search, "search", environ={"RANKER_SEARCH_K": "many"})
    assert settings(Required, "x", environ={"RANKER_X_NAME": "12"}).name == "12"


def test_required_values_may_come_from_anywhere() -> None:
    assert settings(Required, "x", environ={}, flags={"name": "a"}).name == "a"
    with pytest.raises(ConfigError, match=r"the settings of x: .*name"):
        settings(Required, "x", environ={})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"treshold": 1.0}, "unknown key 'treshold' in here. Did you mean 'threshold'?"),
        ({"zzz": 1}, "unknown key 'zzz' in here. Known keys: k, threshold"),
        ({"k": "3"}, "'k' in here must be int, not '3'"),
        ({"k": True}, "'k' in here must be int, not True"),
        ({"k": 1.5}, "'k' in here must be int, not 1.5"),
        ({"k": 0}, "k must be at least 1"),
        ({"mode": "slow"}, "'mode' in here must be one of 'fast', 'exact', not 'slow'"),
        ({"level": True}, "'level' in here must be one of 1, 2, not True"),
        ({"mode": ["fast"]}, "must be one of"),
        ({"pools": "ed"}, "'pools' in here must be"),
        ({"pools": [1]}, "'pools' in here must be str, not 1"),
        ({"size": [1]}, "must have 2 values, not 1"),
        ({"threshold": "high"}, "must be float"),
        ({"inner": {"dept": 1}}, "Did you mean 'depth'?"),
        ({"inner": 1}, "'inner' in here must be Inner, not 1"),
    ],
)
def test_what_a_table_may_not_hold(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_table(Search, table, source="here")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert from_table(Search, {"folder": "~/x"}, source="here").folder == Path("/home/someone/x")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ranker.toml"
    with pytest.raises(ConfigError, match="no such file"):
        read_toml(path)
    path.write_text("[search\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        settings(Search, "search", file=path, environ={})
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(path)
    path.write_text("search = 3\n")
    with pytest.raises(ConfigError, match=r"\[search\] in .* must be a table"):
        settings(Search, "search", file=path, environ={})
