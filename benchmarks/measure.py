"""What the benchmarks share: timing, memory, real texts, and vectors of them that are computed once."""

from __future__ import annotations

import itertools
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ranker.corpora import ReadReport, pairs, read_dialogues
from ranker.home import packaged_pools
from ranker.labels.newsgroups import read_newsgroups
from ranker.pools import CleaningSettings, clean
from ranker.types import Candidate, Context, Encoder, Vectors

T = TypeVar("T")
OUT = Path(__file__).resolve().parent / "out"
CORPORA = {
    "reddit": "reddit",
    "ed": "empathetic_dialogues",
    "dailydialog": "dailydialog",
    "chitchat": "chitchat",
}
console = Console()


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of one call."""

    p50: float
    p99: float

    def cells(self) -> tuple[str, str]:
        return f"{self.p50:.2f}", f"{self.p99:.2f}"


def latency(call: Callable[[T], object], arguments: Sequence[T], *, seconds: float = 8.0) -> Latency:
    """Time single calls over `arguments` in turn, after a warm-up, for about `seconds` (at least 20)."""
    for argument in arguments[:5]:
        call(argument)
    took: list[float] = []
    end = time.perf_counter() + seconds
    for argument in itertools.cycle(arguments):
        start = time.perf_counter()
        call(argument)
        took.append(1000 * (time.perf_counter() - start))
        if time.perf_counter() > end and len(took) >= 20:
            break
    return Latency(float(np.percentile(took, 50)), float(np.percentile(took, 99)))


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number == 0 else "right")
    return made


def candidate_texts(data: Path | None, count: int) -> list[str]:
    """`count` different cleaned utterances of the corpora in `data`; without it, of the samples."""
    cleaned, _ = clean(_utterances(data), CleaningSettings(profane="keep"))
    if len(cleaned) < count:
        console.print(f"only {len(cleaned):,} different texts are there, not {count:,}", style="yellow")
    return [candidate.text for candidate in cleaned[:count]]


def contexts(data: Path | None, count: int) -> list[Context]:
    """Contexts of ED valid (held out of every pool); without data, of the bundled ED sample."""
    folder, split = (data / "ed", "valid") if data else (packaged_pools() / "ed" / "sample", "train")
    dialogues = read_dialogues("empathetic_dialogues", folder, split, ReadReport())
    return [pair.context for pair in itertools.islice(pairs(dialogues, listener_only=True), count)]


def candidate_vectors(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Vectors of the texts, kept in benchmarks/out for the next run with the same encoder and texts."""
    OUT.mkdir(exist_ok=True)
    file = OUT / f"{encoder.fingerprint}-{len(texts)}.npy"
    if file.exists():
        return np.asarray(np.load(file, mmap_mode=None, allow_pickle=False), dtype=np.float32)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("encoding", total=len(texts))
        vectors = encoder.encode_candidates(texts, lambda done, of: bar.update(task, completed=done))
    np.save(file, vectors.astype(np.float16))
    return vectors


def widened(vectors: Vectors, count: int) -> Vectors:
    """`vectors`, filled up to `count` rows with mixtures: uneven normalised sums of two of them each."""
    missing = count - len(vectors)
    if missing <= 0:
        return vectors
    rng = np.random.default_rng(0)
    made = np.empty((count, vectors.shape[1]), np.float32)
    made[: len(vectors)] = vectors
    for start in range(len(vectors), count, 65_536):
        rows = rng.integers(len(vectors), size=(2, min(65_536, count - start)))
        share = rng.uniform(0.1, 0.4, size=(rows.shape[1], 1)).astype(np.float32)
        mixed = (1 - share) * vectors[rows[0]] + share * vectors[rows[1]]
        made[start : start + len(mixed)] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return made


def _utterances(data: Path | None) -> Iterator[Candidate]:
    samples = {"ed": "sample", "dailydialog": "sample", "reddit": "sample"}
    for name, reader in CORPORA.items():
        if data is None and name not in samples:
            continue
        folder = data / name if data else packaged_pools() / name / "sample"
        for dialogue in read_dialogues(reader, folder, "train", ReadReport()):
            for turn in dialogue.turns:
                yield Candidate("", turn.text, name)
    if data is not None:
        for text, _ in read_newsgroups(data / "20news", "train"):
            for sentence in re.split(r"(?<=[.!?]) ", text):
                yield Candidate("", sentence, "20news")
