"""`ranker evaluate`: how well an encoder ranks, beside the published figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import Steps, note, out, print_json, steps, table, wants_json
from ranker.corpora import Pair
from ranker.encoders import load_encoder
from ranker.evaluation.paper import AVG_BLEU, ROWS
from ranker.evaluation.precision import Precision, encode_pairs, inline_precision, precision
from ranker.evaluation.retrieval import BLEU_SETUP, Retrieval, retrieval
from ranker.training.data import has_listener, parse_data, read_pairs
from ranker.types import Encoder, Vectors

_GROUPINGS = {
    "shuffled": "1 of 100, shuffled",
    "in_order": "1 of 100, in order",
    "inline": "the corpus's own",
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of one encoder on one corpus."""

    encoder: str
    fingerprint: str
    corpus: str
    split: str
    precision: tuple[Precision, ...]
    retrieval: Retrieval | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "encoder": self.encoder,
            "fingerprint": self.fingerprint,
            "corpus": self.corpus,
            "split": self.split,
            "precision": [figures.to_dict() for figures in self.precision],
            "retrieval": None if self.retrieval is None else self.retrieval.to_dict(),
        }


def evaluate(
    ctx: typer.Context,
    data: Annotated[list[str], typer.Option("--data", help="corpus=PATH; may be given several times.")],
    encoder: Annotated[
        str | None, typer.Option(help="An encoder by name or folder.", show_default="the embedded one")
    ] = None,
    split: Annotated[str, typer.Option(help="valid, test or train.")] = "valid",
    seeds: Annotated[int, typer.Option(min=1, help="How many shuffles P@1,100 is averaged over.")] = 10,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(help="corpus=PATH: also retrieve from its training responses; may be repeated."),
    ] = None,
    as_json: JsonOption = None,
) -> None:
    """Measure an encoder: P@1,100 as the papers do, and retrieval from a whole pool.

    Examples:

      ranker evaluate --data ed=corpora/empatheticdialogues

      ranker evaluate --encoder runs/mini/distill/model --data ed=corpora/ed --split test --pool ed=corpora/ed
    """
    corpora = parse_data(data)
    pools = parse_data(pool or [])
    made = load_encoder(encoder, home=home_of(ctx))
    with steps() as step:
        candidates = _pool(made, pools, step) if pools else None
        found = [
            _measure(made, encoder or "default", corpus, split, rows, seeds, candidates, step)
            for corpus, path in corpora.items()
            if (rows := _rows(corpus, path, split, limit))
        ]
    for figures in found:
        if wants_json(as_json):
            print_json(figures.to_dict())
        else:
            _print(figures)


def _rows(corpus: str, path: Path, split: str, limit: int | None) -> list[Pair]:
    return read_pairs(corpus, path, split, listener_only=has_listener(corpus))[:limit]


def _pool(encoder: Encoder, pools: dict[str, Path], step: Steps) -> tuple[Vectors, list[str]]:
    """Vectors and texts of the distinct training responses."""
    texts = sorted(
        {pair.response for corpus, path in pools.items() for pair in _rows(corpus, path, "train", None)}
    )
    return encoder.encode_candidates(texts, step("encoding the pool", len(texts))), texts


def _measure(
    encoder: Encoder,
    name: str,
    corpus: str,
    split: str,
    rows: Sequence[Pair],
    seeds: int,
    pool: tuple[Vectors, list[str]] | None,
    step: Steps,
) -> Evaluation:
    contexts, responses = encode_pairs(encoder, rows, step(f"encoding {corpus} {split}", 2 * len(rows)))
    texts = [row.response for row in rows]
    figures = [
        precision(contexts, responses, texts, seeds=seeds),
        precision(contexts, responses, texts, shuffled=False),
    ]
    if any(row.candidates for row in rows):
        figures.append(inline_precision(encoder, rows))
    retrieved = None
    if pool is not None:
        retrieved = retrieval(contexts, responses, texts, *pool, step("ranking the pool", len(rows)))
    return Evaluation(name, encoder.fingerprint, corpus, split, tuple(figures), retrieved)


def _print(found: Evaluation) -> None:
    title = f"{found.encoder} on {found.corpus} {found.split}"
    made = table("ranked among", "P@1", "±", "P@3", "P@10", "MRR", "rank", "rows", title=title)
    for figures in found.precision:
        made.add_row(
            _GROUPINGS[figures.grouping],
            f"{figures.p_at_1.mean:.2f}",
            f"{figures.p_at_1.high - figures.p_at_1.mean:.2f}" if figures.seeds > 1 else "",
            f"{figures.p_at_3.mean:.2f}",
            f"{figures.p_at_10.mean:.2f}",
            f"{figures.mrr.mean:.3f}",
            f"{figures.mean_rank.mean:.2f}",
            f"{figures.rows:,}",
        )
    if has_listener(found.corpus):
        made.add_section()
        for row in ROWS:
            made.add_row(row.model, f"{row.p_at_1:.2f}")
    for column in made.columns:
        column.no_wrap = True
    out.print(made)
    remarks = [f"left out: {found.precision[0].left_out:,} rows of the last group"]
    if found.precision[0].seeds > 1:
        remarks.append("±: 95 % interval of the mean over the shuffles")
    if has_listener(found.corpus):
        remarks.append("the last rows: published, 1 of 100 on the test split")
    note("; ".join(remarks))
    if found.retrieval is not None:
        _print_retrieval(found.retrieval, published=has_listener(found.corpus))


def _print_retrieval(found: Retrieval, *, published: bool) -> None:
    title = f"from {found.pool:,} training responses, the true one added for recall"
    made = table("R@1", "R@10", "R@100", "median rank", "BLEU-1", "-2", "-3", "-4", "AVG BLEU", title=title)
    recalls = (found.recall_at_1, found.recall_at_10, found.recall_at_100)
    made.add_row(
        *(f"{value:.2f}" for value in recalls),
        f"{found.median_rank:g}",
        *(f"{value:.2f}" for value in found.bleu.orders),
        f"{found.bleu.average:.2f}",
    )
    out.print(made)
    note(BLEU_SETUP + (f"; published AVG BLEU: {AVG_BLEU[0]:.2f} to {AVG_BLEU[1]:.2f}" if published else ""))
