"""Encoding one short text, and many: this package against sentence-transformers on torch, the same model.

    python benchmarks/encode.py --model FOLDER [--data FOLDER]

`--model` is a sentence-transformers folder or hub id of the model behind the encoder that is compared
(default: the embedded one). Both sides get one thread for single texts, and all cores for many.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from measure import candidate_texts, console, latency, table

from ranker import load_encoder


def main(
    model: Annotated[str, typer.Option(help="sentence-transformers folder or hub id")],
    encoder: Annotated[str | None, typer.Option(help="our encoder")] = None,
    data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None,
    count: int = 2000,
) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    texts = candidate_texts(data, count)
    short = [text for text in texts if 8 <= len(text.split()) <= 14][:200]
    peer = SentenceTransformer(model, device="cpu")
    shown = table(
        f"{len(short)} texts of 8-14 words alone; {len(texts):,} texts in batches",
        "path",
        "p50 ms",
        "p99 ms",
        "texts/s",
    )

    torch.set_num_threads(1)
    theirs = latency(lambda text: peer.encode([text], show_progress_bar=False), short)
    ours_single = load_encoder(encoder, threads=1)
    ours = latency(lambda text: ours_single.encode_candidates([text]), short)

    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)
    start = time.perf_counter()
    peer.encode(texts, batch_size=64, show_progress_bar=False)
    their_rate = len(texts) / (time.perf_counter() - start)
    ours_many = load_encoder(encoder, threads=cores)
    start = time.perf_counter()
    ours_many.encode_candidates(texts)
    our_rate = len(texts) / (time.perf_counter() - start)

    shown.add_row("sentence-transformers (torch)", *theirs.cells(), f"{their_rate:,.0f}")
    shown.add_row("ranker (int8 ONNX)", *ours.cells(), f"{our_rate:,.0f}")
    shown.add_row(
        "ratio",
        f"{theirs.p50 / ours.p50:.1f}x",
        f"{theirs.p99 / ours.p99:.1f}x",
        f"{our_rate / their_rate:.1f}x",
    )
    console.print(shown)


if __name__ == "__main__":
    typer.run(main)
