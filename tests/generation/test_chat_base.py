"""Getting the base model of `chat`: downloads from a local server, and imports of a folder."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tiny_chat
from typer.testing import CliRunner

from ranker.cli import app
from ranker.errors import ConfigError, DownloadError, IntegrityError, NotFoundError, RankerError
from ranker.generation.chat_base import (
    BaseCard,
    BaseFile,
    base_card,
    base_root,
    checked_base,
    fetch_base,
    import_base,
    open_base,
    shape_of,
)
from ranker.home import Home
from ranker.pools import FetchSettings

QUICK = FetchSettings(attempts=2, backoff_seconds=0.001, timeout_seconds=5)


class Server(ThreadingHTTPServer):
    """Serves the files of a folder. `broken` names a file of which only half is sent, that many times."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.asked: list[tuple[str, str | None]] = []
        self.broken: dict[str, int] = {}
        self.missing: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/files/")
        span = self.headers.get("Range")
        self.server.asked.append((name, span))
        if name in self.server.missing:
            self.send_error(404)
            return
        data = (self.server.folder / name).read_bytes()
        start = int((span or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if self.server.broken.get(name, 0):
            self.server.broken[name] -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.write_base(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def server(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(base) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(5)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def card_of(server: Server) -> BaseCard:
    files = tuple(
        BaseFile(file.name, hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
        for file in sorted(server.folder.iterdir())
    )
    return BaseCard("tiny/chat", "1", "CC0-1.0", f"http://127.0.0.1:{server.server_port}/files", files)


def test_all_files_arrive_checked(server: Server, home: Home) -> None:
    card, seen = card_of(server), list[tuple[int, int]]()
    fetch_base(card, home, lambda done, total: seen.append((done, total)), settings=QUICK)
    folder = open_base(home)
    assert folder.manifest.origin == "tiny/chat, revision 1"
    assert folder.manifest.licence == "CC0-1.0"
    assert shape_of(checked_base(folder)) == shape_of(server.folder)
    assert seen == sorted(seen)
    assert seen[-1] == (card.size_bytes, card.size_bytes)
    assert [path.name for path in home.generators.iterdir() if "arriving" in path.name] == []


def test_what_arrived_is_not_asked_for_again(server: Server, home: Home) -> None:
    card = card_of(server)
    server.missing = {"tokenizer.json"}
    with pytest.raises(DownloadError, match=r"404.*ranker import generator:chat FOLDER"):
        fetch_base(card, home, settings=QUICK)
    with pytest.raises(NotFoundError):
        open_base(home)
    server.missing, server.asked = set(), []
    server.broken = {"tokenizer.json": 1}
    fetch_base(card, home, settings=QUICK)
    assert "model.safetensors" not in [name for name, _ in server.asked]
    half = (server.folder / "tokenizer.json").stat().st_size // 2
    assert ("tokenizer.json", f"bytes={half}-") in server.asked
    checked_base(open_base(home))


def test_a_file_that_is_another_one(server: Server, home: Home) -> None:
    card = card_of(server)
    wrong = tuple(BaseFile(file.name, "0" * 64, file.size_bytes) for file in card.files)
    with pytest.raises(DownloadError, match="does not match its checksum"):
        fetch_base(BaseCard("tiny/chat", "1", "CC0-1.0", card.url, wrong), home, settings=QUICK)
    assert not list(home.generators.rglob("*.part"))


def test_the_packages_own_card_is_whole() -> None:
    card = base_card()
    assert card.hub_id == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert card.revision in card.url
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {file.name for file in card.files}
    assert 265_000_000 < card.size_bytes < 280_000_000


def test_cards_that_cannot_be(server: Server) -> None:
    file = card_of(server).files[0]
    with pytest.raises(ConfigError, match=r"not http\(s\)"):
        BaseCard("a/b", "1", "none", "file:///etc", (file,))
    with pytest.raises(ConfigError, match="no sha256"):
        BaseCard("a/b", "1", "none", "http://x", (BaseFile("config.json", "", 3),))
    with pytest.raises(ConfigError, match="has a file"):
        BaseCard("a/b", "1", "none", "http://x", (BaseFile("../config.json", file.sha256, 3),))


def test_an_import_takes_only_what_it_needs(base: Path, home: Home, tmp_path: Path) -> None:
    source = tmp_path / "copy"
    source.mkdir()
    for file in base.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    (source / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    (source / "modeling_evil.py").write_text("raise SystemExit")
    folder = import_base(source, home, licence="MIT")
    names = {path.name for path in folder.path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"} <= names
    assert not names & {"pytorch_model.bin", "modeling_evil.py"}
    assert folder.manifest.licence == "MIT"
    assert checked_base(open_base(home)) == folder.path


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_file(base: Path, home: Home, tmp_path: Path, name: str) -> None:
    source = tmp_path / "copy"
    source.mkdir()
    for file in base.iterdir():
        if file.name != name:
            (source / file.name).write_bytes(file.read_bytes())
    with pytest.raises(NotFoundError, match="has no"):
        import_base(source, home)


def test_damaged_folders_leave_the_old_base(base: Path, home: Home, tmp_path: Path) -> None:
    old = import_base(base, home)
    source = tmp_path / "copy"
    source.mkdir()
    for file in base.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    (source / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(IntegrityError, match="not a whole safetensors file"):
        import_base(source, home)
    (source / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(IntegrityError, match="does not describe"):
        import_base(source, home)
    assert open_base(home).path == old.path
    with pytest.raises(NotFoundError):
        import_base(tmp_path / "nowhere", home)


def test_a_changed_file_is_noticed(base: Path, home: Home) -> None:
    folder = import_base(base, home)
    weights = folder.path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(IntegrityError, match="sha256"):
        checked_base(open_base(home))


def test_the_commands(base: Path, home: Home) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["--home", str(home.root), "import", "generator:chat", str(base)])
    assert result.exit_code == 0
    assert base_root(home).is_dir()
    for command in (["fetch", "generator:chatt"], ["import", "generator:seq2seq", str(base)]):
        result = runner.invoke(app, ["--home", str(home.root), *command])
        assert isinstance(result.exception, RankerError)
        assert "chat" in str(result.exception)
