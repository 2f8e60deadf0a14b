"""`ranker build-index`, `ranker add` and `ranker remove`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ranker.bundle import Bundle, remove_candidates
from ranker.cli.options import EncoderOption, home_of
from ranker.cli.output import note, steps
from ranker.encoders import load_encoder
from ranker.engine import DEFAULT_INDEX, building, index_names
from ranker.errors import InputError, NotFoundError
from ranker.home import Home
from ranker.index import KINDS
from ranker.pools import CleaningSettings


def build_index(
    ctx: typer.Context,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", "-p", help="The pool; may be given several times.", show_default="ed"),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(KINDS)}.", show_default="by pool size")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Use the bundled sample even where the full corpus is here.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Index only the first N candidates.")] = None,
    keep_profane: Annotated[
        bool, typer.Option("--keep-profane", help="Do not drop profane candidates.")
    ] = False,
    encoder: Annotated[
        str | None, typer.Option(help="An encoder by name or folder.", show_default="the embedded one")
    ] = None,
) -> None:
    """Build the index of a pool; the old one answers until the new one is whole.

    Examples:

      ranker build-index --pool ed

      ranker build-index --pool reddit --kind hnsw --limit 200000
    """
    home = home_of(ctx)
    cleaning = CleaningSettings(profane="keep" if keep_profane else "drop")
    made = load_encoder(encoder, home=home)
    for name in dict.fromkeys(pool or [DEFAULT_INDEX]):
        with steps() as step:
            built = building.build_index(
                name,
                made,
                encoder or "default",
                home,
                sample=sample,
                kind=kind,
                cleaning=cleaning,
                limit=limit,
                step=step,
            )
        note(f"Read {built.read.summary()}; {built.cleaned.summary()}.")
        segment = built.bundle.manifest.segments[0]
        note(f"Index {name!r}: {segment.count:,} candidates, {segment.index.kind}. {segment.reason}")
        if segment.recall < 1:
            note(f"Recall@10 against exact search: {segment.recall:.3f}")
        if built.is_sample:
            how = f"{built.card.next_step}, then build again"
            note(f"This is the bundled sample of {built.card.title}. For the full pool: {how}.")
        else:
            note(
                f"This is the full pool, {built.card.licence}. For the bundled sample instead: add --sample."
            )


def add(
    ctx: typer.Context,
    index: Annotated[str, typer.Argument(help="An index of your home.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Replies; none: one per line from stdin.")] = None,
    encoder: EncoderOption = None,
) -> None:
    """Add replies to an index without rebuilding it.

    Example: ranker add ed "That must have been a long day. Want to talk about it?"
    """
    root = _home_index(index, home_of(ctx))
    given = texts or [line.decode("utf-8", "replace") for line in sys.stdin.buffer]
    added, report = building.add_texts(root, given, home_of(ctx), encoder_name=encoder)
    note(f"Added {added:,} to {index!r}; {report.summary()}.")


def remove(
    ctx: typer.Context,
    index: Annotated[str, typer.Argument(help="An index of your home.")],
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of candidates, as `ranker query --json` shows.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Remove the candidates with exactly this text.")
    ] = None,
) -> None:
    """Remove candidates from an index without rebuilding it.

    Example: ranker remove ed --text "lol whatever"
    """
    if not ids and not text:
        raise InputError("nothing to remove", fix="Give ids, or --text 'the reply'")
    root = _home_index(index, home_of(ctx))
    before = Bundle.open(root).count
    after = remove_candidates(root, ids=ids or (), texts=text or ()).count
    note(f"Removed {before - after:,} from {index!r}; {after:,} are left.")


def _home_index(name: str, home: Home) -> Path:
    """An index that may be changed: those embedded in the package may not."""
    known = index_names(home)
    if name not in known:
        raise NotFoundError.of(
            "index of yours", name, known, fix=f"To build it: ranker build-index --pool {name}"
        )
    return home.indexes / name
