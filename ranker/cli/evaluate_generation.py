"""`ranker evaluate generation`: how well a generator replies, or reranks, beside the published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, out, print_json, steps, table, wants_json
from ranker.corpora import Pair
from ranker.encoders import load_encoder
from ranker.errors import InputError
from ranker.evaluation.generation import DISTINCT_SETUP, GenerationFigures, measure_generation
from ranker.evaluation.paper import GENERATORS, PublishedGenerator
from ranker.evaluation.reranking import TOP, Reranking, measure_reranking
from ranker.evaluation.retrieval import BLEU_SETUP
from ranker.generation import load_generator
from ranker.training.data import has_listener, parse_data, read_pairs
from ranker.types import Reranker

_INTERRUPTED = 130


def evaluate_generation(
    ctx: typer.Context,
    generator: Annotated[str, typer.Option(help="A generator by name or folder.")],
    data: Annotated[list[str], typer.Option("--data", help="corpus=PATH; may be given several times.")],
    split: Annotated[str, typer.Option(help="valid, test or train.")] = "valid",
    rows: Annotated[int, typer.Option(min=1, help="How many replies are decoded, or rows reranked.")] = 500,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows of the split.")] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank", help=f"Measure it as a reranker of the encoder's first {TOP} instead.")
    ] = False,
    encoder: Annotated[
        str | None,
        typer.Option(help="What compares replies and is reranked.", show_default="the embedded encoder"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the rows.")] = 0,
    as_json: JsonOption = None,
) -> None:
    """Measure a generator: perplexity, AVG BLEU, Distinct, similarity, emotion accuracy, time.

    Perplexity and emotion accuracy are over all rows. Ctrl-C shows what is known so far.

    Examples:

      ranker evaluate generation --generator chat --data ed=corpora/empatheticdialogues

      ranker evaluate generation --generator chat --data ed=corpora/ed --rerank --rows 1000
    """
    corpora = parse_data(data)
    made = load_generator(generator, home=home_of(ctx))
    judge = load_encoder(encoder, home=home_of(ctx))
    for corpus, path in corpora.items():
        pairs = _rows(corpus, path, split, limit)
        title = f"{made.name} on {corpus} {split}"
        about = {"generator": made.name, "corpus": corpus, "split": split, "encoder": judge.fingerprint}
        found: GenerationFigures | Reranking
        with steps() as step:
            if not rerank:
                found = measure_generation(made, judge, pairs, decoded=rows, step=step, seed=seed)
            elif not isinstance(made, Reranker):
                raise InputError(
                    f"the generator {made.name!r} cannot score replies", fix="Leave --rerank out"
                )
            else:
                found = measure_reranking(
                    made,
                    judge,
                    pairs,
                    rows=rows,
                    seed=seed,
                    encoding=step("encoding", 2 * min(rows, len(pairs))),
                    scoring=step("reranking", min(rows, len(pairs))),
                )
        if wants_json(as_json):
            print_json({**about, **found.to_dict()})
        elif isinstance(found, Reranking):
            _print_reranking(found, title)
        else:
            _print(found, title, published=has_listener(corpus))
        if found.interrupted:
            note("interrupted: the figures are of what was measured until then")
            raise typer.Exit(_INTERRUPTED)


def _rows(corpus: str, path: Path, split: str, limit: int | None) -> list[Pair]:
    return read_pairs(corpus, path, split, listener_only=has_listener(corpus))[:limit]


def _print(found: GenerationFigures, title: str, *, published: bool) -> None:
    columns = ("generator", "PPL", "/word", "AVG BLEU", "D-1", "D-2", "SES", "emotion %")
    made = table(*columns, title=title)
    ppl, replies, emotion = found.perplexity, found.replies, found.emotion
    made.add_row(
        "measured",
        _figure(ppl.per_token if ppl else None, 2),
        _figure(ppl.per_word if ppl else None, 2),
        _figure(replies.bleu.average if replies else None, 2),
        _figure(replies.distinct.one if replies else None, 3),
        _figure(replies.distinct.two if replies else None, 3),
        _figure(replies.similarity if replies else None, 3),
        _figure(emotion.accuracy if emotion else None, 1),
    )
    if published:
        made.add_section()
        for row in GENERATORS:
            made.add_row(*_published(row))
    for column in made.columns:
        column.no_wrap = True
    out.print(made)
    if replies is not None:
        out.print(
            f"{replies.rows:,} replies of {replies.words:.1f} words in {replies.seconds_p50:.2f} s (p50), "
            f"{replies.seconds_p99:.2f} s (p99); {replies.limited:.1f} % stopped by a limit, "
            f"{replies.refused:.1f} % refused; BLEU-1 to -4: "
            + ", ".join(f"{order:.2f}" for order in replies.bleu.orders),
            soft_wrap=True,
        )
    for line in _remarks(found, published):
        note(line)


def _remarks(found: GenerationFigures, published: bool) -> list[str]:
    lines = []
    if ppl := found.perplexity:
        lines.append(
            f"PPL per token of {ppl.tokenizer} ({ppl.tokens:,} tokens of {ppl.rows:,} replies, their ends "
            f"included); per word, words being separated by whitespace ({ppl.words:,})"
        )
    if found.replies:
        lines.append(f"{BLEU_SETUP}; D: {DISTINCT_SETUP}; SES: cosine to the true reply by our own encoder")
    if found.emotion:
        lines.append(f"emotion: by the generator's own head, {found.emotion.rows:,} contexts")
    if published:
        lines.append(
            "the last rows: published, test split; every paper has its own tokenizer, so perplexities and "
            "Distinct compare only roughly, and its own encoder for SES"
        )
    return lines


def _print_reranking(found: Reranking, title: str) -> None:
    made = table("ranked by", "P@1", "P@3", "P@10", "MRR", "rank", "rows", title=title)
    for name, figures in (("the encoder", found.before), (f"its first {found.top} reranked", found.after)):
        made.add_row(
            name,
            f"{figures.p_at_1.mean:.2f}",
            f"{figures.p_at_3.mean:.2f}",
            f"{figures.p_at_10.mean:.2f}",
            f"{figures.mrr.mean:.3f}",
            f"{figures.mean_rank.mean:.2f}",
            f"{figures.rows:,}",
        )
    out.print(made)
    note(
        f"1 of 100; reranking put the true reply first in {found.won:,} rows, and no longer in {found.lost:,}"
    )


def _published(row: PublishedGenerator) -> tuple[str, ...]:
    one, two = row.distinct or (None, None)
    return (
        row.model,
        _figure(row.perplexity, 2),
        "",
        _figure(row.bleu, 2),
        _figure(one, 3),
        _figure(two, 3),
        _figure(row.similarity, 3),
    )


def _figure(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:.{decimals}f}"
