"""A small home with two indexes of the hashing encoder, and the server on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from serving import REPLIES, Rebuild, Start, running, write_index
from starlette.testclient import TestClient

from ranker.home import Home
from ranker.server import ServerSettings, create_app


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "served")
    for name, replies in REPLIES.items():
        write_index(made, name, replies)
    return made


@pytest.fixture
def settings(home: Home) -> ServerSettings:
    return ServerSettings(home=home.root, indexes=("ed", "shop"), reload_seconds=0)


@pytest.fixture
def client(settings: ServerSettings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def start(home: Home, tmp_path: Path) -> Iterator[Start]:
    """Starts real servers, each with some TOML lines of its own; they are stopped at the end."""
    with ExitStack() as stack:
        yield lambda lines: stack.enter_context(running(home, tmp_path, lines))


@pytest.fixture
def rebuild(home: Home) -> Rebuild:
    """Build an index anew: one with these words in each of its replies."""

    def build(name: str, words: str) -> None:
        write_index(home, name, [(f"{words}, number {number}.", "content") for number in range(5)])

    return build
