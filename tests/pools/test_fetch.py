"""Downloads from a local server: whole, broken off, refused, wrong and hostile."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ranker.errors import CorpusError, DownloadError, IntegrityError
from ranker.home import Home
from ranker.pools import FetchSettings, PoolCard, fetch_raw, raw_data

QUICK = FetchSettings(attempts=3, backoff_seconds=0.001, timeout_seconds=5)
Answer = Callable[["Handler", int], None]


def archive_of(name: str = "corpus/train.csv") -> bytes:
    content = hashlib.shake_128(b"seed").digest(200_000)  # does not compress, so the archive is this long too
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


ARCHIVE = archive_of()


class Server(ThreadingHTTPServer):
    """Answers the n-th request with the n-th answer, and every later one with the last."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = [whole]
        self.ranges: list[str | None] = []
        self.data = ARCHIVE


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        place = min(len(self.server.ranges), len(self.server.answers)) - 1
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.server.answers[place](self, start)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def send(self, start: int, length: int | None = None) -> None:
        """The data from `start`: all of it is announced, `length` bytes of it are sent."""
        data = self.server.data
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:] if length is None else data[start : start + length])


def whole(handler: Handler, start: int) -> None:
    handler.send(start)


def ignoring_range(handler: Handler, start: int) -> None:
    handler.send(0)


def cut(length: int, *, resume: bool = True) -> Answer:
    return lambda handler, start: handler.send(start if resume else 0, length)


def error(status: int) -> Answer:
    return lambda handler, start: handler.send_error(status)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(5)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def card_for(server: Server, *, sha256: str = "", size_bytes: int = 0) -> PoolCard:
    return PoolCard(
        name="toy",
        title="Toy",
        licence="CC0-1.0",
        commercial_use=True,
        reader="generic",
        utterances="all",
        url=f"http://127.0.0.1:{server.server_port}/toy.tar.gz",
        sha256=sha256 or hashlib.sha256(server.data).hexdigest(),
        size_bytes=size_bytes or len(server.data),
    )


def accept(folder: Path) -> None:
    assert list(folder.rglob("train.csv"))


def fetch(server: Server, home: Home, card: PoolCard | None = None) -> Path:
    return fetch_raw(card or card_for(server), home, validate=accept, settings=QUICK)


def part(home: Home) -> Path:
    return home.pools / "toy" / "toy.tar.gz.part"


def test_a_whole_download_is_unpacked_and_reported(server: Server, home: Home) -> None:
    seen: list[tuple[int, int]] = []
    card = card_for(server)
    found = fetch_raw(
        card, home, lambda done, total: seen.append((done, total)), validate=accept, settings=QUICK
    )
    assert (found / "corpus" / "train.csv").stat().st_size == 200_000
    assert raw_data(card, home).path == found
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert seen == sorted(seen)
    assert not part(home).exists()


def test_a_broken_transfer_is_resumed(server: Server, home: Home) -> None:
    server.answers = [cut(100_000), cut(50_000), whole]
    fetch(server, home)
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_what_arrived_is_resumed_by_the_next_run(server: Server, home: Home) -> None:
    server.answers = [cut(70_000), error(503)]
    with pytest.raises(DownloadError, match=r"503.*70,000 of"):
        fetch(server, home)
    assert part(home).stat().st_size == 70_000
    server.answers = [whole]
    fetch(server, home)
    assert server.ranges[-1] == "bytes=70000-"


def test_a_server_that_ignores_the_range_starts_again(server: Server, home: Home) -> None:
    server.answers = [cut(100_000), ignoring_range]
    fetch(server, home)
    assert len(server.ranges) == 2


def test_a_server_that_cannot_resume(server: Server, home: Home) -> None:
    server.answers = [cut(100_000), error(416), whole]
    fetch(server, home)
    assert server.ranges == [None, "bytes=100000-", None]


def test_errors_that_pass(server: Server, home: Home) -> None:
    server.answers = [error(500), error(429), whole]
    fetch(server, home)
    assert len(server.ranges) == 3


def test_errors_that_stay(server: Server, home: Home) -> None:
    server.answers = [error(404)]
    with pytest.raises(DownloadError, match=r"answers 404.*ranker import toy PATH"):
        fetch(server, home)
    assert len(server.ranges) == 1


def test_a_transfer_that_always_ends_early(server: Server, home: Home) -> None:
    server.answers = [cut(1000, resume=False)]
    with pytest.raises(DownloadError, match="1,000 of"):
        fetch(server, home)
    assert len(server.ranges) == 1 + QUICK.attempts


def test_a_wrong_checksum_deletes_what_came(server: Server, home: Home) -> None:
    with pytest.raises(DownloadError, match="does not match its checksum"):
        fetch(server, home, card_for(server, sha256="0" * 64))
    assert not part(home).exists()
    assert not (home.pools / "toy" / "raw").exists()


def test_a_longer_file_is_not_read_to_its_end(server: Server, home: Home) -> None:
    with pytest.raises(DownloadError, match="longer than the 1,000 bytes"):
        fetch(server, home, card_for(server, size_bytes=1000))
    assert not part(home).exists()


def test_a_stale_part_is_replaced(server: Server, home: Home) -> None:
    part(home).parent.mkdir(parents=True)
    part(home).write_bytes(b"x" * (len(ARCHIVE) + 1))
    fetch(server, home)
    assert server.ranges == [None]


def test_nobody_listens(server: Server, home: Home) -> None:
    card = card_for(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match="cannot download"):
        fetch(server, home, card)


def test_an_archive_that_reaches_outside(server: Server, home: Home) -> None:
    server.data = archive_of("../../evil.csv")
    with pytest.raises(IntegrityError, match="leads outside"):
        fetch(server, home)
    assert not list(home.root.parent.rglob("evil.csv"))


def test_an_archive_that_the_reader_cannot_use_leaves_the_old_data(server: Server, home: Home) -> None:
    card = card_for(server)
    old = fetch(server, home, card)

    def refuse(folder: Path) -> None:
        raise CorpusError("no usable row")

    with pytest.raises(CorpusError):
        fetch_raw(card, home, validate=refuse, settings=QUICK)
    assert raw_data(card, home).path == old


def test_a_card_without_a_url_says_what_to_do(home: Home) -> None:
    card = PoolCard("toy", "Toy", "none", False, "generic", "all", how_to_get="Ask a friend")
    with pytest.raises(DownloadError, match=r"no download\. Ask a friend"):
        fetch_raw(card, home, validate=accept)


def test_only_http(home: Home) -> None:
    card = PoolCard(
        "toy", "Toy", "none", False, "generic", "all", url="file:///etc/passwd", sha256="0" * 64, size_bytes=1
    )
    with pytest.raises(DownloadError, match=r"not http\(s\)"):
        fetch_raw(card, home, validate=accept)
