"""Real server processes: draining, reloading under load, several workers."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from serving import Load, Rebuild, Start, wait_for

DRAIN = 1.5
"""Long enough for every connection that is kept to be used once more, on a busy machine too."""


def test_sigterm_under_load_loses_no_request(start: Start) -> None:
    server = start(f"drain_seconds = {DRAIN}")
    load = Load(server.url)
    wait_for(lambda: load.outcomes["200"] > 50)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, seconds=DRAIN)
    server.process.wait(timeout=20)
    outcomes = load.stop()
    assert set(outcomes) == {"200", "refused"}, outcomes


def test_an_index_is_replaced_under_load_without_an_error(start: Start, rebuild: Rebuild) -> None:
    server = start("reload_seconds = 0.1")
    load = Load(server.url, threads=3)
    for version in range(3):
        rebuild("ed", f"version {version}")

        def answers_from_it(wanted: str = f"version {version}") -> bool:
            answer = httpx.post(f"{server.url}/v1/rank", json={"context": wanted}, timeout=20)
            return bool(answer.json()["ranking"][0]["text"].startswith(wanted))

        wait_for(answers_from_it)
    outcomes = load.stop()
    assert set(outcomes) == {"200"}, outcomes


def test_workers_share_the_port_and_add_up_their_numbers(start: Start) -> None:
    server = start(f"workers = 2\nthreads = 1\ndrain_seconds = {DRAIN}")
    for _ in range(20):
        assert httpx.post(f"{server.url}/v1/rank", json={"context": "hello"}).status_code == 200
    numbers = httpx.get(f"{server.url}/metrics").text
    assert 'ranker_requests_total{route="/v1/rank",status="200"} 20.0' in numbers
    load = Load(server.url, threads=4)
    wait_for(lambda: load.outcomes["200"] > 50)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=20)
    outcomes = load.stop()
    assert set(outcomes) == {"200", "refused"}, outcomes


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts open files in /proc")
def test_workers_take_their_share_of_connections_that_come_at_once(start: Start) -> None:
    server = start("workers = 2\nthreads = 1")
    ports = {pid: _open_files(pid) for pid in _children(server.process.pid)}
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with ExitStack() as open_now:
        for _ in range(12):
            open_now.enter_context(socket.create_connection(address))

        def taken() -> list[int]:
            return sorted(_open_files(pid) - before for pid, before in ports.items())

        wait_for(lambda: sum(taken()) >= 12)
        assert taken()[-2] >= 3, taken()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
