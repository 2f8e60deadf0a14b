"""Searching real vectors: our indexes against exact search and sentence-transformers' semantic_search.

    python benchmarks/search.py [--data FOLDER] [--sizes 20000,200000,1000000]

One thread, one context at a time, k = 10. Recall is against exact search over the same vectors.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OMP_NUM_THREADS", "1")

import typer
from measure import (
    candidate_texts,
    candidate_vectors,
    console,
    contexts,
    latency,
    peak_memory_mb,
    table,
    widened,
)

from ranker import load_encoder
from ranker.index import ExactIndex, Kind, as_kind, build_index, choose_kind, measured_recall


def main(
    data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None,
    sizes: str = "20000,200000,1000000",
    kinds: str = "",
    peer: Annotated[bool, typer.Option(help="also time semantic_search")] = True,
    encoded: Annotated[int, typer.Option(help="encode so many texts; beyond them, mixtures of two")] = 0,
) -> None:
    encoder = load_encoder()
    wanted = [int(size) for size in sizes.split(",")]
    texts = candidate_texts(data, encoded or max(wanted))
    vectors = widened(candidate_vectors(encoder, texts), max(wanted) if encoded else 0)
    asked = encoder.encode_contexts(contexts(data, 500))
    held_out, tuning = asked[:300], asked[300:]
    rows = [held_out[row : row + 1] for row in range(len(held_out))]
    shown = table(
        f"one thread, k = 10, {vectors.shape[1]} dimensions",
        "candidates",
        "index",
        "p50 ms",
        "p99 ms",
        "recall@10",
        "build s",
        "MB",
    )
    for size in dict.fromkeys(min(size, len(vectors)) for size in wanted):
        part = vectors[:size]
        chosen, _ = choose_kind(size, part.shape[1])
        names: list[Kind] = [as_kind(kind) for kind in kinds.split(",") if kind] or list(
            dict.fromkeys(["flat", chosen])
        )
        for kind in names:
            start = time.perf_counter()
            index = build_index(kind, part, sample=tuning)
            built = time.perf_counter() - start
            took = latency(lambda row, index=index: index.search(row, 10), rows)  # type: ignore[misc] # bound now
            recall = 1.0 if isinstance(index, ExactIndex) else measured_recall(index, part, held_out)
            mark = " *" if kind == chosen else ""
            shown.add_row(
                f"{size:,}",
                kind + mark,
                *took.cells(),
                f"{recall:.3f}",
                f"{built:.0f}",
                f"{peak_memory_mb():,.0f}",
            )
        if peer:
            import torch
            from sentence_transformers.util import semantic_search

            torch.set_num_threads(1)
            corpus, queries = torch.from_numpy(part), [torch.from_numpy(row) for row in rows]
            took = latency(lambda row, corpus=corpus: semantic_search(row, corpus, top_k=10), queries)  # type: ignore[misc] # bound now
            shown.add_row(
                f"{size:,}",
                "semantic_search (torch)",
                *took.cells(),
                "1.000",
                "-",
                f"{peak_memory_mb():,.0f}",
            )
    console.print(shown)
    console.print("* chosen by size")


if __name__ == "__main__":
    typer.run(main)
