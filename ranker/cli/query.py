"""`ranker query` and `ranker chat`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.markup import escape

from ranker.cli.options import DiversityOption, EncoderOption, JsonOption, PoolOption, home_of
from ranker.cli.output import err, note, out, print_json, table, wants_json
from ranker.config import settings
from ranker.engine import Boosts, Draft, FallbackSettings, Filters, Ranker, When
from ranker.engine.fallback import when_of
from ranker.engine.shapes import ranking_as_json, reply_as_json
from ranker.errors import InputError
from ranker.safety import SafetySettings
from ranker.types import Context, Ranking, Response, Vectors

FallbackOption = Annotated[
    str | None,
    typer.Option(
        metavar="never|auto|always|NUMBER",
        help="When the generator answers; a number: where the confidence is below it.",
        show_default="auto: below what was measured",
    ),
]
GeneratorOption = Annotated[
    str | None, typer.Option(help="A generator by name or folder.", show_default="chat")
]
_BATCH = 256
_COMMANDS = ":why the ranking behind the last reply · :reset start over · :quit leave"


def query(
    ctx: typer.Context,
    turns: Annotated[
        list[str] | None,
        typer.Argument(help="The conversation, oldest turn first. None, or -: read contexts from stdin."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many replies to rank.")] = 5,
    pool: PoolOption = None,
    emotion: Annotated[list[str] | None, typer.Option(help="Only replies with this emotion.")] = None,
    intent: Annotated[list[str] | None, typer.Option(help="Only replies with this intent.")] = None,
    boost_emotion: Annotated[list[str] | None, typer.Option(help="Move replies with it up.")] = None,
    boost_intent: Annotated[list[str] | None, typer.Option(help="Move replies with it up.")] = None,
    boost_weight: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="How far up: what a boost adds to the score.")
    ] = 0.1,
    response_intent: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=10.0,
            help="How much it counts that a reply's intent is the likely one.",
        ),
    ] = 0.0,
    commercial: Annotated[
        bool, typer.Option("--commercial", help="Only replies whose licence allows commercial use.")
    ] = False,
    diversity: DiversityOption = 0.0,
    encoder: EncoderOption = None,
    fallback: FallbackOption = None,
    generator: GeneratorOption = None,
    as_json: JsonOption = None,
) -> None:
    """Rank replies to a conversation. Where nothing fits, a generator answers; a crisis gets a fixed message.

    Examples:

      ranker query "I finally got promoted at work!"

      ranker query "My dog died this morning." "I'm so sorry." "He was fourteen." --k 3

      ranker query --pool ed --pool dailydialog --json "What a day."

      ranker query "I lost my job." --boost-intent questioning --boost-emotion hopeful

      ranker query "My parrot has learnt to whistle Bach." --fallback always

      printf 'first context\\nsecond context\\n' | ranker query
    """
    from_stdin = not turns or turns == ["-"]
    if from_stdin and sys.stdin.isatty():
        raise InputError("no text given", fix='For example: ranker query "I finally got promoted at work!"')
    ranker, when = _opened(ctx, pool, encoder, fallback, generator)
    filters = Filters(emotions=tuple(emotion or ()), intents=tuple(intent or ()), commercial_only=commercial)
    boosts = Boosts(tuple(boost_emotion or ()), tuple(boost_intent or ()), boost_weight, response_intent)
    batches = _stdin_batches() if from_stdin else iter([[turns or []]])
    for batch in batches:
        contexts = [Context.of(turns) for turns in batch]
        vectors = ranker.encoder.encode_contexts(contexts)
        rankings = ranker.rank_vectors(
            contexts, vectors, k, filters=filters, boosts=boosts, diversity=diversity
        )
        for ranking, vector in zip(rankings, vectors, strict=True):
            draft = ranker.draft_ranked(ranking, vector[None], fallback=when)
            reply = None if draft is None else _completed(ranker, draft)
            if wants_json(as_json):
                print_json(ranking_as_json(ranking) | {"reply": reply and reply_as_json(reply)})
            else:
                _print_answer(ranking, reply, show_context=from_stdin)


def chat(
    ctx: typer.Context,
    pool: PoolOption = None,
    diversity: DiversityOption = 0.0,
    encoder: EncoderOption = None,
    fallback: FallbackOption = None,
    generator: GeneratorOption = None,
) -> None:
    """Talk with the engine; it remembers the conversation.

    Inside: :why shows the ranking behind the last reply, :reset starts over, :quit leaves.
    """
    ranker, when = _opened(ctx, pool, encoder, fallback, generator)
    note(_COMMANDS)
    turns: list[str] = []
    last: Ranking | None = None
    while (line := _ask()) is not None:
        if line in (":quit", ":q", ":exit"):
            return
        if line in (":reset", ":new"):
            turns, last = [], None
            note("A new conversation.")
        elif line == ":why":
            if last is None:
                note("Nothing was said yet.")
            else:
                _print_ranking(last)
        elif line.startswith(":"):
            note(f"Unknown command {line}. {_COMMANDS}")
        elif line:
            try:
                context = Context.of([*turns, line])
            except InputError as error:
                note(str(error))
                continue
            vector = ranker.encoder.encode_contexts([context])
            [last] = ranker.rank_vectors([context], vector, k=5, diversity=diversity)
            turns += [line, _say(ranker, last, vector, when)]


def _opened(
    ctx: typer.Context,
    pool: list[str] | None,
    encoder: str | None,
    fallback: str | None,
    generator: str | None,
) -> tuple[Ranker, When]:
    """The ranker with its generator and safety as flags, environment and the home's file say."""
    home = home_of(ctx)
    flags = {"generator": generator, "when": None if fallback is None else when_of(fallback)}
    limits = settings(FallbackSettings, "fallback", file=home.config_file, flags=flags)
    ranker = Ranker.open(
        *(pool or ()),
        home=home,
        encoder=encoder,
        generator=limits.generator or None,
        limits=limits,
        safety=settings(SafetySettings, "safety", file=home.config_file),
    )
    return ranker, limits.when


def _completed(ranker: Ranker, draft: Draft) -> Response:
    if not draft.asks_generator:
        return draft.response
    with err.status("generating", spinner="dots"):
        return ranker.complete(draft)


def _say(ranker: Ranker, ranking: Ranking, vector: Vectors, when: When) -> str:
    """Print the reply, as it is made where it is generated, and return it."""
    draft = ranker.draft_ranked(ranking, vector, fallback=when)
    if draft is None:
        return "…"
    out.print("[bold cyan]ranker>[/] ", end="")
    stream = ranker.stream(draft)
    for piece in stream:
        out.print(escape(piece), end="", soft_wrap=True)
        out.file.flush()
    out.print()
    response = stream.response
    if stream.is_cut:
        out.print(f"[bold cyan]ranker>[/] {escape(response.text)}", soft_wrap=True)
    if response.note:
        note(response.note)
    return response.text


def _print_answer(ranking: Ranking, reply: Response | None, show_context: bool) -> None:
    """The reply where it is not the first of the ranking, then the ranking; a fixed message stands alone."""
    if show_context:
        out.print(" / ".join(ranking.context.turns), style="bold", markup=False)
    if reply is not None and reply.source != "retrieved":
        out.print(f"[bold green]{reply.source}>[/] {escape(reply.text)}\n", soft_wrap=True)
    if reply is None or reply.source != "fixed":
        _print_ranking(ranking)
    if reply is not None and reply.note:
        note(reply.note)


def _print_ranking(ranking: Ranking) -> None:
    shown = table("score", "reply", "emotion", "pool")
    for place in ranking:
        candidate = place.candidate
        shown.add_row(
            f"{place.score:.3f}",
            escape(candidate.text),
            f"[magenta]{escape(candidate.label('emotion') or '')}[/]",
            f"[dim]{escape(candidate.pool)}[/]",
        )
    out.print(shown if len(ranking) else "No candidate is allowed by the filters.")
    if ranking.confidence is not None and len(ranking):
        note(f"confidence {ranking.confidence:.0%}")


def _ask() -> str | None:
    """The next line, or None at the end of input."""
    try:
        return out.input("[bold]you>[/] ").strip()
    except EOFError:
        return None


def _stdin_batches() -> Iterator[list[list[str]]]:
    """Contexts from stdin, a line each: plain text (one turn), a JSON list of turns, or {"context": ...}."""
    batch: list[list[str]] = []
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        line = raw.decode("utf-8", "replace").strip()
        if line:
            batch.append(_parse_context(line, number))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _parse_context(line: str, number: int) -> list[str]:
    if line[0] not in "[{":
        return [line]
    try:
        value = json.loads(line)
    except ValueError:
        return [line]
    turns = value.get("context") if isinstance(value, dict) else value
    turns = [turns] if isinstance(turns, str) else turns
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise InputError(f'line {number} of stdin must be text, a list of turns, or {{"context": [...]}}')
    return turns
