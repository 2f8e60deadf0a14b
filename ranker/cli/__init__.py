"""The command line: `ranker COMMAND`. One line on stderr and exit 1 for an error, 2 for wrong usage."""

from __future__ import annotations

import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ranker.cli import (
    evaluate,
    evaluate_fallback,
    evaluate_generation,
    export,
    feedback,
    indexes,
    inspect,
    label,
    pools,
    query,
    safety,
    serve,
    train,
    train_generator,
    train_labels,
)
from ranker.cli.output import err
from ranker.errors import RankerError
from ranker.home import Home

app = typer.Typer(
    name="ranker",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ranks human replies to a conversation. Start with: ranker query 'I finally got promoted at work!'",
)


class _EvaluateGroup(TyperGroup):
    """`ranker evaluate --data ...` is short for `ranker evaluate encoder --data ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["encoder", *args]
        return super().parse_args(ctx, args)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ranker {metadata.version('response-ranker')}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(help="Where pools and indexes live.", envvar="RANKER_HOME", show_default=False),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    ctx.obj = Home.find(home)


app.command("query", rich_help_panel="Ask")(query.query)
app.command("chat", rich_help_panel="Ask")(query.chat)
app.command("label", rich_help_panel="Ask")(label.label)
app.command("pools", rich_help_panel="Pools and indexes")(pools.pools)
app.command("fetch", rich_help_panel="Pools and indexes")(pools.fetch)
app.command("import", rich_help_panel="Pools and indexes")(pools.import_pool)
app.command("build-index", rich_help_panel="Pools and indexes")(indexes.build_index)
app.command("add", rich_help_panel="Pools and indexes")(indexes.add)
app.command("remove", rich_help_panel="Pools and indexes")(indexes.remove)
app.command("serve", rich_help_panel="Serve")(serve.serve)
app.add_typer(feedback.app, name="feedback", rich_help_panel="Serve")
app.command("train", rich_help_panel="Research")(train.train)
app.command("train-generator", rich_help_panel="Research")(train_generator.train_generator)
app.command("train-labels", rich_help_panel="Research")(train_labels.train_labels)
app.command("train-safety", rich_help_panel="Research")(safety.train_safety)
evaluation = typer.Typer(
    cls=_EvaluateGroup,
    no_args_is_help=True,
    help="Measure an encoder (the default), the labels or a generator, as the papers do.",
)
evaluation.command("encoder")(evaluate.evaluate)
evaluation.command("labels")(label.evaluate_labels)
evaluation.command("safety")(safety.evaluate_safety)
evaluation.command("generation")(evaluate_generation.evaluate_generation)
evaluation.command("fallback")(evaluate_fallback.evaluate_fallback)
app.add_typer(evaluation, name="evaluate", rich_help_panel="Research")
app.command("export", rich_help_panel="Research")(export.export)
app.command("info", rich_help_panel="Look inside")(inspect.info)
app.command("doctor", rich_help_panel="Look inside")(inspect.doctor)


def main() -> None:
    """Entry point of the `ranker` command."""
    debug = "--debug" in sys.argv
    # Broken UTF-8 in an argument arrives as lone surrogates: it must not break the output.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except RankerError as error:
        _fail(str(error), debug)
    except KeyboardInterrupt:
        _fail("interrupted", debug, code=130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader left: nothing more to say, not even by the interpreter
        raise SystemExit(141) from None
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        _fail(f"unexpected {detail}. Run again with --debug (ranker --debug ...) for the traceback", debug)


def _fail(message: str, debug: bool, code: int = 1) -> None:
    if debug:
        traceback.print_exc()
    err.print(f"[bold red]error:[/] {_plain(message)}", soft_wrap=True)
    raise SystemExit(code)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
