"""How fast labels are predicted, on one thread.

    python benchmarks/labels.py [--data FOLDER]

fastText's models as the package reads them, texts in batches of 1,000 and one at a time; and the head on the
encoder's vectors, for a vector that is known, as when a query is answered.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OMP_NUM_THREADS", "1")

import typer
from measure import candidate_texts, console, contexts, latency, table

from ranker import load_encoder
from ranker.home import Home
from ranker.labels import HEAD, load_labeler, model_folder, read_head

_BATCH = 1000


def main(data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None) -> None:
    texts = candidate_texts(data, 20_000)
    shown = table("labels, one thread", "model", "texts/s in batches", "p50 ms, one", "p99 ms, one")
    for kind in ("emotion", "intent", "topic"):
        labeler = load_labeler(kind)
        labeler.predict(texts[:_BATCH], 1)
        start = time.perf_counter()
        for place in range(0, len(texts), _BATCH):
            labeler.predict(texts[place : place + _BATCH], 1)
        per_second = len(texts) / (time.perf_counter() - start)
        one = latency(lambda text, labeler=labeler: labeler.predict([text], 1), texts[:500], seconds=3)  # type: ignore[misc] # bound now
        shown.add_row(f"fastText {kind}", f"{per_second:,.0f}", f"{one.p50:.3f}", f"{one.p99:.3f}")
    encoder = load_encoder(threads=1)
    vectors = encoder.encode_contexts(contexts(data, 200))
    head = read_head(model_folder(HEAD, Home.find()), encoder=encoder.fingerprint)
    rows = [vectors[row : row + 1] for row in range(len(vectors))]
    one = latency(lambda row: head.predict_vectors(row, 3), rows, seconds=3)
    shown.add_row("head on a known vector", "", f"{one.p50:.3f}", f"{one.p99:.3f}")
    console.print(shown)


if __name__ == "__main__":
    typer.run(main)
