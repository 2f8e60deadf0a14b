"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora: $RANKER_TEST_DATA, else `shared/data` beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RANKER_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"the real corpora are not at {folder}")
    return folder


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the home of the person who runs it."""
    monkeypatch.setenv("RANKER_HOME", str(tmp_path / "home"))
