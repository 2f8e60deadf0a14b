"""`ranker query` and `ranker chat`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.markup import escape

from ranker.cli.options import DiversityOption, EncoderOption, JsonOption, PoolOption, home_of
from ranker.cli.output import note, out, print_json, table, wants_json
from ranker.engine import Boosts, Filters, Ranker
from ranker.engine.shapes import ranking_as_json
from ranker.errors import InputError
from ranker.types import Ranking

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
    as_json: JsonOption = None,
) -> None:
    """Rank replies to a conversation.

    Examples:

      ranker query "I finally got promoted at work!"

      ranker query "My dog died this morning." "I'm so sorry." "He was fourteen." --k 3

      ranker query --pool ed --pool dailydialog --json "What a day."

      ranker query "I lost my job." --boost-intent questioning --boost-emotion hopeful

      printf 'first context\\nsecond context\\n' | ranker query
    """
    from_stdin = not turns or turns == ["-"]
    if from_stdin and sys.stdin.isatty():
        raise InputError("no text given", fix='For example: ranker query "I finally got promoted at work!"')
    ranker = Ranker.open(*(pool or ()), home=home_of(ctx), encoder=encoder)
    filters = Filters(emotions=tuple(emotion or ()), intents=tuple(intent or ()), commercial_only=commercial)
    boosts = Boosts(tuple(boost_emotion or ()), tuple(boost_intent or ()), boost_weight, response_intent)
    batches = _stdin_batches() if from_stdin else iter([[turns or []]])
    for contexts in batches:
        for ranking in ranker.rank_many(contexts, k, filters=filters, boosts=boosts, diversity=diversity):
            if wants_json(as_json):
                print_json(ranking_as_json(ranking))
            else:
                _print_ranking(ranking, show_context=from_stdin)


def chat(
    ctx: typer.Context,
    pool: PoolOption = None,
    diversity: DiversityOption = 0.0,
    encoder: EncoderOption = None,
) -> None:
    """Talk with the engine; it remembers the conversation.

    Inside: :why shows the ranking behind the last reply, :reset starts over, :quit leaves.
    """
    ranker = Ranker.open(*(pool or ()), home=home_of(ctx), encoder=encoder)
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
                last = ranker.rank([*turns, line], k=5, diversity=diversity)
            except InputError as error:
                note(str(error))
                continue
            reply = last[0].candidate.text if last else "…"
            turns += [line, reply]
            out.print(f"[bold cyan]ranker>[/] {escape(reply)}", soft_wrap=True)


def _print_ranking(ranking: Ranking, show_context: bool = False) -> None:
    if show_context:
        out.print(" / ".join(ranking.context.turns), style="bold", markup=False)
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
