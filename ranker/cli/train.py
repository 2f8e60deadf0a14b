"""`ranker train`: make an encoder from corpora by a preset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import out, print_json, table, wants_json
from ranker.corpora import Pair
from ranker.errors import MissingExtraError, NotFoundError
from ranker.evaluation.precision import encode_pairs, precision
from ranker.training.data import has_listener, parse_data, read_pairs
from ranker.training.settings import load_recipe
from ranker.types import Encoder


def train(
    ctx: typer.Context,
    preset: Annotated[str, typer.Argument(help="transformer, mini, quality, or a TOML file.")],
    data: Annotated[list[str], typer.Option("--data", help="corpus=PATH; may be given several times.")],
    base: Annotated[
        str | None,
        typer.Option(help="Folder or hub id of the pretrained model.", show_default="the preset's"),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(help="Word vectors to begin from (preset transformer).", show_default="none")
    ] = None,
    prepend: Annotated[
        str | None,
        typer.Option(help="Predicted labels before each text: emotion:1, topic:3 …", show_default="none"),
    ] = None,
    teacher: Annotated[
        list[str] | None,
        typer.Option(help="What to distil from: another run, or an encoder.", show_default="the preset's"),
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="A trained model's folder to go on from.", show_default="a new model")
    ] = None,
    feedback: Annotated[
        Path | None,
        typer.Option(help="Edits to learn: a file of `ranker feedback export`.", show_default="none"),
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Run only this stage.", show_default="all of the preset")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: table.key=value.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.", show_default="the preset's")] = None,
    valid: Annotated[str, typer.Option(help="The corpus whose validation split chooses the model.")] = "ed",
    valid_rows: Annotated[
        int, typer.Option(min=0, help="Measure on the first N rows of it while training; 0: all.")
    ] = 2000,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again, forgetting the run so far.")] = False,
    as_json: JsonOption = None,
) -> None:
    """Train an encoder; the same command goes on with an interrupted run.

    Examples:

      ranker train quality --data ed=corpora/empatheticdialogues

      ranker train mini --data ed=corpora/ed --teacher quality

      ranker train mini --data ed=corpora/ed --teacher quality --prepend emotion:1 --name emotion

      ranker train quality --data ed=corpora/ed --set model.lora_rank=32 --set finetune.epochs=3 --name lora

      ranker train quality --data ed=corpora/ed --feedback feedback.jsonl --name edited
    """
    overrides = list(setting or [])
    overrides += [f"model.base={base!r}"] if base else []
    overrides += [f"model.vectors={vectors!r}"] if vectors else []
    overrides += [f"model.prepend={prepend!r}"] if prepend else []
    overrides += [f"distill.teachers={teacher!r}"] if teacher else []
    recipe = load_recipe(preset, overrides)
    corpora = parse_data(data)
    if valid not in corpora:
        raise NotFoundError.of(
            "corpus", valid, corpora, fix=f"Add --data {valid}=PATH, or name another: --valid"
        )
    held_out = read_pairs(valid, corpora[valid], "valid", listener_only=has_listener(valid))
    held_out = held_out[: valid_rows or None]
    try:
        from ranker.training.run import run_recipe
    except ImportError as error:
        raise MissingExtraError.of("training", "train") from error
    home = home_of(ctx)
    results = run_recipe(
        recipe,
        home.runs / (name or Path(preset).stem),
        corpora,
        lambda encoder: _figures(encoder, held_out),
        only=stage or (),
        start=start,
        feedback=feedback and feedback.expanduser(),
        fresh=fresh,
        home=home,
    )
    if wants_json(as_json):
        for result in results:
            print_json(result.to_dict())
        return
    made = table("stage", "P@1,100", "best step", "pairs", "minutes", "model")
    for result in results:
        made.add_row(
            result.stage,
            f"{result.metrics['p_at_1']:.2f}",
            f"{result.best_step} of {result.steps}",
            f"{result.pairs:,}",
            f"{result.seconds / 60:.0f}",
            str(result.model),
        )
    out.print(made)


def _figures(encoder: Encoder, pairs: list[Pair]) -> dict[str, float]:
    contexts, responses = encode_pairs(encoder, pairs)
    found = precision(contexts, responses, [pair.response for pair in pairs])
    return {"p_at_1": found.p_at_1.mean, "p_at_10": found.p_at_10.mean, "mrr": found.mrr.mean}
