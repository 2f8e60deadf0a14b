"""What the tests of the server share: small indexes, real server processes, and load on them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from ranker.bundle import PoolNote, write_bundle
from ranker.encoders import HashingEncoder
from ranker.home import Home
from ranker.types import Candidate, Label

REPLIES = {
    "ed": [
        ("Congratulations on the promotion, you earned it!", "proud"),
        ("I am so sorry about your dog.", "sad"),
        ("That break-in must have been frightening.", "terrified"),
        ("What a lovely surprise party!", "surprised"),
        ("I hope the exam goes well tomorrow.", "anxious"),
    ],
    "shop": [("Your parcel is on its way.", "content"), ("The promotion ends on Friday!", "content")],
}
_RUN = """
import sys
from pathlib import Path
from ranker.server import ServerSettings, run_server
run_server(ServerSettings.read(Path(sys.argv[1])))
"""


def write_index(home: Home, name: str, replies: list[tuple[str, str]]) -> None:
    """(Re)build the index `name` of a pool with the same name."""
    encoder = HashingEncoder()
    candidates = [
        Candidate(f"{name}:{row}", text, name, (Label("emotion", emotion),))
        for row, (text, emotion) in enumerate(replies)
    ]
    write_bundle(
        home.indexes / name,
        name=name,
        candidates=candidates,
        vectors=encoder.encode_candidates([candidate.text for candidate in candidates]),
        encoder_name="hashing",
        encoder_fingerprint=encoder.fingerprint,
        pools=[PoolNote(name, name.title(), "CC0-1.0", True, is_sample=False)],
    )


@dataclass(frozen=True)
class Running:
    """A server process that answers at `url`."""

    url: str
    process: subprocess.Popen[bytes]


Start = Callable[[str], Running]
Rebuild = Callable[[str, str], None]


class Load:
    """Threads that ask again and again, each over a connection that it keeps, until told to stop."""

    def __init__(self, url: str, threads: int = 6) -> None:
        self._url = url
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=20) as client:
            while not self._stop.is_set():
                try:
                    outcome = str(client.post("/v1/rank", json={"context": "my dog"}).status_code)
                except httpx.ConnectError:
                    outcome = "refused"  # never sent: the port is closed
                except httpx.TransportError as error:
                    outcome = f"lost: {error!r}"
                with self._lock:
                    self.outcomes[outcome] += 1
                if outcome == "refused":
                    return

    def stop(self) -> Counter[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        return self.outcomes


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Raises AssertionError where it does not come to pass in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def running(home: Home, folder: Path, lines: str) -> Iterator[Running]:
    port = _free_port()
    file = folder / f"{port}.toml"
    file.write_text(f'[server]\nport = {port}\nhome = "{home.root}"\nindexes = ["ed", "shop"]\n{lines}\n')
    log = folder / f"{port}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(file)], stderr=stderr, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
            yield Running(f"http://127.0.0.1:{port}", process)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
