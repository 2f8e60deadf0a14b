"""`ranker train-generator`: make a generator from corpora by a preset."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import err, out, print_json, table, wants_json
from ranker.config import read_toml
from ranker.errors import ConfigError, MissingExtraError, NotFoundError
from ranker.training.data import parse_data
from ranker.training.settings import PRESETS, apply_override

if TYPE_CHECKING:
    from ranker.training.generators import GeneratorResult, Job

TRAINABLE = ("chat", "seq2seq")
"""Each has a preset and a module of this name in `ranker.training`."""


class _Module(Protocol):
    def train(self, job: Job) -> GeneratorResult: ...


def train_generator(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="GENERATOR", help=f"{' or '.join(TRAINABLE)}.")],
    data: Annotated[list[str], typer.Option("--data", help="corpus=PATH; may be given several times.")],
    vectors: Annotated[
        str | None, typer.Option(help="Word vectors to begin from (seq2seq).", show_default="none")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Folder of the pretrained model (chat).", show_default="the one that was fetched"),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: table.key=value.")
    ] = None,
    preset: Annotated[
        Path | None, typer.Option(help="A TOML file with settings.", show_default="the generator's own")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the run and of the generator.", show_default="the kind of generator"),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", help="Where to install the generator.", show_default="in the home, by name"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again, forgetting the run so far.")] = False,
    as_json: JsonOption = None,
) -> None:
    """Train a generator and install it; the same command goes on with an interrupted run.

    Examples:

      ranker train-generator seq2seq --data ed=corpora/empatheticdialogues --vectors glove

      ranker train-generator chat --data ed=corpora/empatheticdialogues --set training.epochs=1
    """
    if kind not in TRAINABLE:
        raise NotFoundError.of("generator to train", kind, TRAINABLE)
    file = preset or PRESETS / "generators" / f"{kind}.toml"
    tables = read_toml(file)
    overrides = list(setting or [])
    overrides += [f"model.vectors={vectors!r}"] if vectors else []
    overrides += [f"model.base={base!r}"] if base else []
    for override in overrides:
        apply_override(tables, override)
    for key, value in tables.items():
        if not isinstance(value, dict):
            raise ConfigError(f"{key!r} in {file.name} is not a table")
    name = name or kind
    if Path(name).name != name:
        raise ConfigError(f"--name {name!r} is not a plain name", fix="Say where with --out FOLDER")
    try:
        from ranker.training.generators import Job

        module: _Module = import_module(f"ranker.training.{kind}")
    except ImportError as error:
        raise MissingExtraError.of("training", "train") from error
    home = home_of(ctx)
    result = module.train(
        Job(
            tables=tables,
            source=file.name,
            data=parse_data(data),
            folder=home.runs / name,
            out=target or home.generators / name,
            home=home,
            fresh=fresh,
            console=err,
        )
    )
    if wants_json(as_json):
        print_json(result.to_dict())
        return
    made = table("generator", "perplexity", "best step", "pairs", "minutes", "installed")
    made.add_row(
        result.kind,
        f"{result.metrics['perplexity']:.2f}",
        f"{result.best_step} of {result.steps}",
        f"{result.pairs:,}",
        f"{result.seconds / 60:.0f}",
        str(result.generator),
    )
    out.print(made)
