"""`ranker pools`, `ranker fetch` and `ranker import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ranker.cli.generators import PREFIX, fetch_generator, import_generator
from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, out, print_json, steps, table, wants_json
from ranker.corpora import check_raw
from ranker.engine import index_names
from ranker.errors import NotFoundError
from ranker.home import Home
from ranker.pools import PoolCard, create_card, fetch_raw, import_raw, list_cards, load_card, raw_data


def pools(ctx: typer.Context, as_json: JsonOption = None) -> None:
    """List the pools: their licence, what data is here, and whether an index is built."""
    home = home_of(ctx)
    built = index_names(home)
    rows = [_describe(card, home, built) for card in list_cards(home)]
    if wants_json(as_json):
        for row in rows:
            print_json(row)
        return
    shown = table("pool", "title", "licence", "commercial", "data", "index")
    for row in rows:
        shown.add_row(
            f"[bold]{escape(row['pool'])}[/]",
            escape(row["title"]),
            escape(row["licence"]),
            "yes" if row["commercial_use"] else "no",
            row["data"],
            "built" if row["index"] == "home" else "[dim]embedded[/]" if row["index"] else "[dim]-[/]",
        )
    out.print(shown)
    note("The samples are CC0 (free for any use); the licence is that of the full corpus.")


def fetch(
    ctx: typer.Context,
    pool: Annotated[
        str, typer.Argument(help="A pool whose card has a download URL, such as ed, or generator:chat.")
    ],
) -> None:
    """Download a pool's full corpus, or a generator's base model, from its source, resuming and checking it.

    Examples:

      ranker fetch ed && ranker build-index --pool ed

      ranker fetch generator:chat
    """
    home = home_of(ctx)
    if pool.startswith(PREFIX):
        fetch_generator(pool, home)
        return
    card = load_card(pool, home)
    if card.url:
        note(f"{card.title}: {card.licence}{'' if card.commercial_use else ', not for commercial use'}")
    with steps() as step:
        fetch_raw(
            card,
            home,
            step(f"fetching {pool}", card.size_bytes),
            validate=lambda path: check_raw(card.reader, path, card.split),
        )
    note(f"Done. Next: ranker build-index --pool {pool}")


def import_pool(
    ctx: typer.Context,
    pool: Annotated[
        str, typer.Argument(help="A known pool, a new name for one of your own, or generator:chat.")
    ],
    path: Annotated[Path, typer.Argument(help="A folder, file or archive that you have.")],
    licence: Annotated[str, typer.Option(help="Licence of your own pool.")] = "unstated",
    commercial: Annotated[
        bool, typer.Option("--commercial", help="Your own pool may be used commercially.")
    ] = False,
) -> None:
    """Take a corpus, or a generator's base model, from files that you already have.

    Examples:

      ranker import ed ~/Downloads/empatheticdialogues

      ranker import support replies.jsonl --licence CC-BY-4.0

      ranker import generator:chat ~/models/SmolLM2-135M-Instruct
    """
    home = home_of(ctx)
    if pool.startswith(PREFIX):
        import_generator(pool, path, home, licence=licence)
        return
    try:
        card = load_card(pool, home)
    except NotFoundError:
        if not path.exists():
            raise
        card = create_card(home, pool, licence=licence, commercial_use=commercial)
        note(f"A new pool called {pool!r} (licence: {licence}).")
    import_raw(
        card, path.expanduser(), home, validate=lambda folder: check_raw(card.reader, folder, card.split)
    )
    note(f"Imported. Next: ranker build-index --pool {pool}")


def _describe(card: PoolCard, home: Home, built: list[str]) -> dict[str, Any]:
    return {
        "pool": card.name,
        "title": card.title,
        "licence": card.licence,
        "commercial_use": card.commercial_use,
        "data": _data(card, home),
        "index": "home" if card.name in built else "",
    }


def _data(card: PoolCard, home: Home) -> str:
    try:
        return "sample" if raw_data(card, home).is_sample else "full"
    except NotFoundError:
        return "none"
