"""A whole query, text to ten ranked replies: this package against sentence-transformers with the same model.

    python benchmarks/end_to_end.py --model FOLDER [--data FOLDER] [--sizes 20000,200000,1000000]

The peer encodes with torch and searches with `semantic_search`; we encode with int8 ONNX and search the
index that is chosen for the size, through `Ranker.rank`. One thread each, one context at a time; recall@10 is
against exact search with our own context vectors.
"""

from __future__ import annotations

import os
import tempfile
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

from ranker import Candidate, Ranker, load_encoder
from ranker.bundle import PoolNote, write_bundle
from ranker.index import measured_recall


def main(
    model: Annotated[str, typer.Option(help="sentence-transformers folder or hub id")],
    data: Annotated[Path | None, typer.Option(help="folder of the corpora")] = None,
    sizes: str = "20000,200000,1000000",
    encoded: Annotated[int, typer.Option(help="encode so many texts; beyond them, mixtures of two")] = 0,
) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import semantic_search

    torch.set_num_threads(1)
    encoder = load_encoder(threads=1)
    peer = SentenceTransformer(model, device="cpu")
    peer.max_seq_length = 100
    separator = str(peer.tokenizer.sep_token)
    wanted = [int(size) for size in sizes.split(",")]
    texts = candidate_texts(data, encoded or max(wanted))
    vectors = widened(candidate_vectors(encoder, texts), max(wanted) if encoded else 0)
    texts += [f"{texts[row % len(texts)]} ({row})" for row in range(len(texts), len(vectors))]
    asked = contexts(data, 300)
    joined = [separator.join(context.turns) for context in asked]
    shown = table(
        "text in, ten replies out", "candidates", "path", "p50 ms", "p99 ms", "recall@10", "ratio", "MB"
    )
    for size in dict.fromkeys(min(size, len(texts)) for size in wanted):
        part = vectors[:size]
        corpus = torch.from_numpy(part)
        theirs = latency(
            lambda text, corpus=corpus: semantic_search(  # type: ignore[misc] # bound now
                peer.encode([text], convert_to_tensor=True, show_progress_bar=False), corpus, top_k=10
            ),
            joined,
        )
        shown.add_row(
            f"{size:,}", "sentence-transformers", *theirs.cells(), "1.000", "1.0x", f"{peak_memory_mb():,.0f}"
        )
        with tempfile.TemporaryDirectory() as folder:
            bundle = write_bundle(
                Path(folder) / "all",
                name="all",
                candidates=[Candidate(str(row), text, "all") for row, text in enumerate(texts[:size])],
                vectors=part,
                encoder_name="default",
                encoder_fingerprint=encoder.fingerprint,
                pools=[PoolNote("all", "all", "mixed", False, False)],
                sample=encoder.encode_contexts(contexts(data, 600)[300:]),
            )
            ranker = Ranker([bundle], encoder)
            ours = latency(ranker.rank, asked)
            recall = measured_recall(bundle.segments[0].index, part, encoder.encode_contexts(asked))
            kind = bundle.manifest.segments[0].index.kind
            ratio = f"{theirs.p50 / ours.p50:.1f}x"
            shown.add_row(
                f"{size:,}",
                f"ranker ({kind})",
                *ours.cells(),
                f"{recall:.3f}",
                ratio,
                f"{peak_memory_mb():,.0f}",
            )
    console.print(shown)


if __name__ == "__main__":
    typer.run(main)
