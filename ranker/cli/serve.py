"""`ranker serve`: the ranker over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranker.cli.options import EncoderOption, PoolOption, home_of
from ranker.cli.output import note
from ranker.errors import ConfigError, MissingExtraError
from ranker.storage import write_bytes


def serve(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="0.0.0.0 lets other machines in.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, show_default="8000")] = None,
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="1")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each process.", show_default="by the cores")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with tables [server], [fallback], [safety].",
            show_default="ranker.toml of the home",
        ),
    ] = None,
    write_openapi: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the OpenAPI document and leave.", show_default=False),
    ] = None,
) -> None:
    """Serve the ranker over HTTP: its own API, OpenAI's and Cohere's conventions, and a chat page.

    A flag goes before the environment (RANKER_SERVER_PORT=8080), that before the file.

    Examples:

      ranker serve

      ranker serve --pool ed --pool dailydialog --workers 2

      RANKER_SERVER_API_KEYS=key1,key2 ranker serve --host 0.0.0.0
    """
    try:
        from ranker.server import ServerSettings, openapi_json, run_server
    except ImportError as error:
        raise MissingExtraError.of(f"serving ({error.name})", "serve") from error
    if write_openapi is not None:
        write_bytes(write_openapi, openapi_json().encode())
        note(f"Wrote {write_openapi}.")
        return
    home = home_of(ctx)
    if config is not None and not config.is_file():
        raise ConfigError(f"no such file: {config}")
    given = {
        "host": host,
        "port": port,
        "indexes": pool,
        "encoder": encoder,
        "workers": workers,
        "threads": threads,
        "home": str(home.root) if _asked_for_home(ctx) else None,
    }
    run_server(ServerSettings.read(config or home.config_file, given))


def _asked_for_home(ctx: typer.Context) -> bool:
    """Whether --home or RANKER_HOME names it: only then does it go before the file's."""
    return ctx.find_root().params.get("home") is not None
