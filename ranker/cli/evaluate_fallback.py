"""`ranker evaluate fallback`: below which confidence a generated reply is better than a retrieved one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ranker.cli.options import EncoderOption, JsonOption, PoolOption, home_of
from ranker.cli.output import Steps, note, out, print_json, steps, table, wants_json
from ranker.corpora import Pair
from ranker.engine import DEFAULT_INDEX, Ranker
from ranker.engine.answers import HINTS
from ranker.engine.fallback import Threshold, generator_version, write_threshold
from ranker.errors import CorpusError, GenerationError, InputError
from ranker.evaluation.fallback import (
    CRITERION,
    LEAST_ROWS,
    SECOND_OPINION,
    Choice,
    Judged,
    choose,
    likeness,
    plot,
    sentence_bleu,
)
from ranker.storage import storage_errors
from ranker.training.data import has_listener, parse_data, read_pairs
from ranker.types import Context, Fallback

_BATCH = 256


@dataclass(frozen=True, slots=True)
class _Row:
    """A held-out context with its replies; `generated` is empty where the generator gave none."""

    confidence: float
    true: str
    retrieved: str
    generated: str


def evaluate_fallback(
    ctx: typer.Context,
    data: Annotated[list[str], typer.Option("--data", help="corpus=PATH; may be given several times.")],
    generator: Annotated[str, typer.Option(help="A generator by name or folder.")] = "chat",
    rows: Annotated[int, typer.Option(min=LEAST_ROWS, help="How many contexts of each corpus.")] = 400,
    split: Annotated[
        str, typer.Option(help="valid or test: neither encoder nor pool may know it.")
    ] = "valid",
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Also draw both curves, as a PNG.")
    ] = None,
    replies: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep generated replies here, and go on from those kept."),
    ] = None,
    write: Annotated[
        bool, typer.Option(help="Keep the threshold beside the generator, for --fallback auto.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Chooses the rows and the halves.")] = 0,
    as_json: JsonOption = None,
) -> None:
    """Measure when to fall back, and keep the threshold that `--fallback auto` stands on.

    Half of the contexts choose the confidence below which generated replies are more like the true ones than
    retrieved ones are; the other half tells what that gains.

    Example: ranker evaluate fallback --data ed=corpora/empatheticdialogues --plot fallback.png
    """
    from ranker.generation import load_generator

    home = home_of(ctx)
    corpora = parse_data(data)
    ranker = Ranker.open(*(pool or ()), home=home, encoder=encoder, generator=None)
    if ranker.encoder.calibration is None:
        raise InputError("the encoder was never calibrated: its rankings have no confidence")
    pairs = [pair for corpus, path in corpora.items() for pair in _pairs(corpus, path, split, rows, seed)]
    made = load_generator(generator, home)
    with steps() as step:
        found = _replies(ranker, made, pairs, replies, step)
    answered = [row for row in found if row.generated]
    judged = {"cosine": _judged(ranker, answered), "AVG BLEU": _judged_by_words(answered)}
    choices = {name: choose(one, seed) for name, one in judged.items()}
    chosen = choices["cosine"]
    pools = ", ".join(pool or (DEFAULT_INDEX,))
    count = sum(bundle.count for bundle in ranker.bundles)
    about = (
        f"{', '.join(corpora)} {split}, {len(answered)} contexts, ranked from {pools} ({count:,} candidates)"
    )
    threshold = Threshold(
        threshold=round(chosen.threshold, 6),
        criterion=CRITERION,
        generator=generator,
        generator_version=generator_version(generator, home),
        encoder_fingerprint=ranker.encoder.fingerprint,
        measured=about,
        quality_retrieved=round(chosen.retrieved, 6),
        quality_generated=round(chosen.generated, 6),
        quality_with_threshold=round(chosen.given, 6),
    )
    if wants_json(as_json):
        shown = {name: asdict(choice) for name, choice in choices.items()}
        print_json(asdict(threshold) | {"unanswered": len(found) - len(answered), "choices": shown})
    else:
        _print(choices, about, len(found) - len(answered))
    if plot_file is not None:
        plot(judged, chosen.threshold, plot_file, f"{generator}: {about}")
        note(f"The curves are in {plot_file}.")
    if write:
        note(f"The threshold is in {write_threshold(threshold, home)}.")


def _pairs(corpus: str, path: Path, split: str, rows: int, seed: int) -> list[Pair]:
    found = read_pairs(corpus, path, split, listener_only=has_listener(corpus))
    return random.Random(seed).sample(found, min(rows, len(found)))


def _replies(
    ranker: Ranker, generator: Fallback, pairs: Sequence[Pair], file: Path | None, step: Steps
) -> list[_Row]:
    """The retrieved and the generated reply to each context, as `respond` would give them."""
    known = _kept(file)
    retrieving = step("retrieving", len(pairs))
    generating = step(f"generating with {generator.name}", len(pairs))
    rankings = []
    for start in range(0, len(pairs), _BATCH):
        rankings += ranker.rank_many([pair.context for pair in pairs[start : start + _BATCH]], HINTS)
        retrieving(min(start + _BATCH, len(pairs)), len(pairs))
    found = []
    failures = 0
    for place, (pair, ranking) in enumerate(zip(pairs, rankings, strict=True), start=1):
        if not ranking:
            raise InputError("the pool has no candidate for a context")
        key = _key(generator.name, pair.context)
        text = known.get(key)
        if text is None:
            try:
                hints = [one.candidate.text for one in ranking]
                text = generator.reply(pair.context, hints).text
            except GenerationError:
                failures += 1
                if failures > LEAST_ROWS:  # it will not get better
                    raise
                text = ""
            else:
                _keep(file, key, text)
        found.append(_Row(ranking.confidence or 0.0, pair.response, ranking[0].candidate.text, text))
        generating(place, len(pairs))
    return found


def _judged(ranker: Ranker, rows: Sequence[_Row]) -> Judged:
    true = [row.true for row in rows]
    return Judged(
        np.array([row.confidence for row in rows]),
        likeness(ranker.encoder, [row.retrieved for row in rows], true),
        likeness(ranker.encoder, [row.generated for row in rows], true),
    )


def _judged_by_words(rows: Sequence[_Row]) -> Judged:
    true = [row.true for row in rows]
    return Judged(
        np.array([row.confidence for row in rows]),
        sentence_bleu([row.retrieved for row in rows], true),
        sentence_bleu([row.generated for row in rows], true),
    )


def _key(generator: str, context: Context) -> str:
    return "\n".join((generator, *context.turns))


def _kept(file: Path | None) -> dict[str, str]:
    """Replies by key. Raises CorpusError for a file of another kind."""
    if file is None or not file.is_file():
        return {}
    try:
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        return {line["key"]: line["reply"] for line in lines}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CorpusError(
            f"{file} does not hold kept replies", fix="Name another file, or delete it"
        ) from error


def _keep(file: Path | None, key: str, reply: str) -> None:
    if file is not None:
        with storage_errors(file), file.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"key": key, "reply": reply}, ensure_ascii=False) + "\n")


def _print(choices: dict[str, Choice], about: str, unanswered: int) -> None:
    shown = table(
        "criterion", "threshold", "asked %", "retrieved", "generated", "with threshold", "gain", title=about
    )
    for name, choice in choices.items():
        shown.add_row(
            name,
            f"{choice.threshold:.3f}",
            f"{100 * choice.asked:.1f}",
            f"{choice.retrieved:.4f}",
            f"{choice.generated:.4f}",
            f"{choice.given:.4f}",
            f"{choice.gain:+.4f} ({choice.gain_low:+.4f} to {choice.gain_high:+.4f})",
        )
    out.print(shown)
    note(f"cosine (it decides): {CRITERION}. AVG BLEU (a second opinion): {SECOND_OPINION}.")
    note("Figures are of the half that the threshold was not chosen on; the gain is over never falling back.")
    if unanswered:
        note(f"{unanswered} contexts are left out, since the generator gave no reply.")
