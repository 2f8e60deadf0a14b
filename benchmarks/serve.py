"""The server under load.

    python benchmarks/serve.py compare --model FOLDER [--data FOLDER] [--size 20000] [--workers 2]
    python benchmarks/serve.py soak [--minutes 10]

`compare`: requests a second and latency at rising load, against the naive server (one FastAPI route around
sentence-transformers and a flat FAISS index) on the same machine in one run. Both rank the same candidates by
the same vectors for the same contexts, ten each. Each level is a number of connections that ask again as soon
as they are answered; the load comes from this process, so it takes its share of the cores from both alike.

`soak`: memory and errors of our server under steady load.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import typer
from measure import candidate_texts, candidate_vectors, console, contexts, table

from ranker import Candidate, Context, load_encoder
from ranker.bundle import PoolNote, write_bundle
from ranker.home import Home

_K = 10
_START_SECONDS = 120
commands = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Level:
    """What one number of connections gave; latencies in milliseconds."""

    connections: int
    per_second: float
    p50: float
    p99: float
    errors: int


@commands.command()
def compare(
    model: Annotated[str, typer.Option(help="sentence-transformers folder or hub id, for the naive server")],
    data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None,
    size: Annotated[int, typer.Option(help="candidates")] = 20_000,
    workers: Annotated[str, typer.Option(help="numbers of worker processes of our server to try")] = "1,2",
    levels: str = "1,2,4,8,16,32,64",
    seconds: Annotated[float, typer.Option(help="time of each level")] = 10.0,
) -> None:
    """Requests a second and latency at rising load, ours against the naive server."""
    asked = contexts(data, 500)
    wanted = [int(level) for level in levels.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        home = _home(Path(folder), data, size)
        found: dict[str, list[Level]] = {}
        with _running(["naive", "--model", model, "--home", folder], "/healthz") as (url, _):
            found["naive"] = [_measure(url, "/rank", asked, level, seconds) for level in wanted]
        for number in map(int, workers.split(",")):
            with _ours(home, number) as (url, _):
                found[f"ranker, {number} worker(s)"] = [
                    _measure(url, "/v1/rank", asked, level, seconds) for level in wanted
                ]
    _show(found, size)


@commands.command()
def soak(
    data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None,
    minutes: float = 10.0,
    size: Annotated[int, typer.Option(help="candidates")] = 5_000,
    connections: int = 8,
    workers: int = 1,
) -> None:
    """Memory of our server under steady load: the last quarter against the second, after the warm-up."""
    asked = contexts(data, 500)
    steps = 20
    with tempfile.TemporaryDirectory() as folder:
        home = _home(Path(folder), data, size)
        with _ours(home, workers) as (url, process):
            memory, errors, answers = [], 0, 0.0
            for _ in range(steps):
                seconds = 60 * minutes / steps
                level = _measure(url, "/v1/rank", asked, connections, seconds)
                memory.append(_memory_mb(process.pid))
                errors += level.errors
                answers += level.per_second * seconds
    early, late = np.median(memory[steps // 4 : steps // 2]), np.median(memory[-steps // 4 :])
    shown = table("memory under load", "minutes", "answers", "errors", "MB early", "MB late", "growth")
    growth = f"{100 * (late / early - 1):+.1f} %"
    shown.add_row(f"{minutes:g}", f"{answers:,.0f}", str(errors), f"{early:.0f}", f"{late:.0f}", growth)
    console.print(shown)


@commands.command(hidden=True)
def naive(model: str = "", home: str = "", port: int = 0) -> None:
    """What one writes first: encode with torch, search a flat index, one request at a time in each thread."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, device="cpu")
    encoder.max_seq_length = 100
    separator = str(encoder.tokenizer.sep_token)
    texts = json.loads((Path(home) / "texts.json").read_text("utf-8"))
    vectors = np.load(Path(home) / "vectors.npy")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    app = FastAPI()

    class Body(BaseModel):
        context: list[str]
        k: int = _K

    # The annotations of this module are texts, which FastAPI cannot look up inside a function.
    def rank(body: Body) -> dict[str, list[dict[str, str | float]]]:
        vector = encoder.encode(
            [separator.join(body.context)], normalize_embeddings=True, show_progress_bar=False
        )
        [scores], [rows] = index.search(vector, body.k)
        return {
            "ranking": [
                {"text": texts[row], "score": float(score)} for score, row in zip(scores, rows, strict=True)
            ]
        }

    rank.__annotations__ = {"body": Body, "return": dict[str, list[dict[str, str | float]]]}
    app.post("/rank")(rank)
    app.get("/healthz")(lambda: {"status": "ok"})
    uvicorn.run(app, port=port, log_level="error", access_log=False)


@commands.command(hidden=True)
def ours(home: str = "", port: int = 0, workers: int = 1) -> None:
    """Our server, as `ranker serve` starts it."""
    from ranker.server import ServerSettings, run_server

    run_server(ServerSettings(home=Path(home), indexes=("bench",), port=port, workers=workers))


def _home(folder: Path, data: Path | None, size: int) -> Home:
    """A home with an index of `size` candidates, and the same vectors for the naive server."""
    encoder = load_encoder()
    texts = candidate_texts(data, size)
    vectors = candidate_vectors(encoder, texts)
    home = Home(folder)
    write_bundle(
        home.indexes / "bench",
        name="bench",
        candidates=[Candidate(str(row), text, "bench") for row, text in enumerate(texts)],
        vectors=vectors,
        encoder_name="default",
        encoder_fingerprint=encoder.fingerprint,
        pools=[PoolNote("bench", "bench", "mixed", False, False)],
    )
    np.save(folder / "vectors.npy", vectors)
    (folder / "texts.json").write_text(json.dumps(texts), "utf-8")
    return home


@contextmanager
def _ours(home: Home, workers: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with _running(["ours", "--home", str(home.root), "--workers", str(workers)], "/readyz") as running:
        yield running


@contextmanager
def _running(arguments: list[str], ready: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """One of the hidden commands in a process of its own, once it answers at `ready`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, __file__, *arguments, "--port", str(port)])
    try:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                urllib.request.urlopen(url + ready, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield url, process
    finally:
        process.terminate()
        process.wait(60)


def _measure(url: str, path: str, asked: Sequence[Context], connections: int, seconds: float) -> Level:
    """A tenth of the time is warm-up and does not count."""
    host, port = url.removeprefix("http://").split(":")
    requests = [_request(host, path, context) for context in asked]
    took, errors, span = asyncio.run(_load(host, int(port), requests, connections, seconds))
    if not took:
        return Level(connections, 0.0, float("nan"), float("nan"), errors)
    p50, p99 = (float(1000 * np.percentile(took, share)) for share in (50, 99))
    return Level(connections, len(took) / span, p50, p99, errors)


def _request(host: str, path: str, context: Context) -> bytes:
    body = json.dumps({"context": list(context.turns), "k": _K}).encode()
    head = (
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*head, "", "")).encode() + body


async def _load(
    host: str, port: int, requests: Sequence[bytes], connections: int, seconds: float
) -> tuple[list[float], int, float]:
    """Seconds of each good answer, the number of others, and the time that counts."""
    start = time.perf_counter()
    counts_from, end = start + seconds / 10, start + seconds
    took: list[float] = []
    errors = 0
    order = itertools.cycle(requests)

    async def ask() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(host, port)
        while (began := time.perf_counter()) < end:
            writer.write(next(order))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            now = time.perf_counter()
            if not head.startswith(b"HTTP/1.1 200"):
                errors += 1
            elif began >= counts_from:
                took.append(now - began)
        writer.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    return took, errors, time.perf_counter() - counts_from


def _show(found: dict[str, list[Level]], size: int) -> None:
    title = f"ten of {size:,} candidates over HTTP"
    shown = table(title, "server", "connections", "requests/s", "p50 ms", "p99 ms", "errors")
    for name, levels in found.items():
        for level in levels:
            shown.add_row(
                name,
                str(level.connections),
                f"{level.per_second:,.0f}",
                f"{level.p50:.1f}",
                f"{level.p99:.1f}",
                str(level.errors),
            )
    console.print(shown)
    best = max(found["naive"], key=lambda level: level.per_second)
    for name, levels in found.items():
        equal = [level.per_second for level in levels if level.p99 <= best.p99 and not level.errors]
        if name != "naive" and equal:
            ratio = max(equal) / best.per_second
            console.print(
                f"{name}: {ratio:.1f}x the naive server's best, at no larger p99 ({best.p99:.1f} ms)"
            )


def _memory_mb(root: int) -> float:
    """Resident memory of a process and its children, from /proc."""
    parents: dict[int, int] = {}
    resident: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = dict(
                    line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
                )
            except OSError:
                continue
            parents[int(folder.name)] = int(fields["PPid"])
            resident[int(folder.name)] = int(fields.get("VmRSS", "0 kB").split()[0]) / 1e3
    return sum(size for pid, size in resident.items() if pid == root or parents[pid] == root)


if __name__ == "__main__":
    commands()
