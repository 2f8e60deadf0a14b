"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ranker.home import Home

PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool", "-p", help="An index to rank from; may be given several times.", show_default="ed"
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(help="An encoder by name or folder.", show_default="the one that the index was built with"),
]
DiversityOption = Annotated[float, typer.Option(min=0.0, max=1.0, help="Trade score for variety, 0 to 1.")]
JsonOption = Annotated[
    bool | None,
    typer.Option("--json/--no-json", help="JSON lines, or a table.", show_default="JSON in a pipe"),
]


def home_of(ctx: typer.Context) -> Home:
    """The home chosen by the global option --home."""
    home = ctx.find_root().obj
    return home if isinstance(home, Home) else Home.find()
