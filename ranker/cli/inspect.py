"""`ranker info` and `ranker doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.markup import escape

from ranker.bundle import Bundle
from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import out, print_json, table, wants_json
from ranker.encoders import load_encoder
from ranker.engine import Ranker, index_folder, index_names
from ranker.errors import RankerError
from ranker.home import EMBEDDED, Home
from ranker.types import Encoder

_PROBE = "I finally got promoted at work!"
_EXTRAS = {"train": "sentence_transformers", "serve": "fastapi"}
_LOW_DISK_GB = 1.0


def info(
    ctx: typer.Context,
    index: Annotated[str | None, typer.Argument(help="An index; none: the encoder and all indexes.")] = None,
    as_json: JsonOption = None,
) -> None:
    """Show the default encoder's model card and the indexes, or one index's manifest."""
    home = home_of(ctx)
    if index is not None:
        shown = asdict(Bundle.open(index_folder(index, home)).manifest)
    else:
        shown = {
            "home": str(home.root),
            "encoder": _encoder_card(load_encoder(home=home)),
            "indexes": _indexes(home),
        }
    if wants_json(as_json):
        print_json(shown)
        return
    for key, value in shown.items():
        _print_field(key, value)


def doctor(ctx: typer.Context, as_json: JsonOption = None) -> None:
    """Check the install, the home and every index, and say what to do about what is wrong."""
    checks = list(_checks(home_of(ctx)))
    if wants_json(as_json):
        print_json([asdict(check) for check in checks])
    else:
        shown = table("", "check", "finding")
        marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[bold red]bad[/]"}
        for check in checks:
            shown.add_row(marks[check.state], check.name, escape(check.finding))
        out.print(shown)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Check:
    state: str
    name: str
    finding: str


def _checks(home: Home) -> Iterator[Check]:
    yield Check(
        "ok",
        "package",
        f"response-ranker {metadata.version('response-ranker')}, Python {platform.python_version()}",
    )
    for extra, module in _EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        missing = f'not installed: pip install "response-ranker[{extra}]"'
        yield Check("ok" if there else "note", f"extra {extra}", "installed" if there else missing)
    yield _check_home(home)
    try:
        encoder = load_encoder(home=home)
        yield Check("ok", "default encoder", f"{encoder.dim} dimensions, fingerprint {encoder.fingerprint}")
    except RankerError as error:
        yield Check("bad", "default encoder", str(error))
    for place, label in ((Home(EMBEDDED), "embedded index"), (home, "index")):
        for name in index_names(place):
            yield _check_index(name, place, label)
    try:
        reply = Ranker.open(home=home).respond(_PROBE)
        yield Check("ok", "answer", f"{_PROBE!r} -> {reply.text!r}")
    except RankerError as error:
        yield Check("bad", "answer", str(error))


def _check_home(home: Home) -> Check:
    place = home.root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    if not os.access(place, os.W_OK):
        return Check(
            "note", "home", f"{home.root} is not writable: choose another with --home or RANKER_HOME"
        )
    state = "ok" if free > _LOW_DISK_GB else "note"
    return Check(state, "home", f"{home.root}, {free:.1f} GB free")


def _check_index(name: str, home: Home, label: str) -> Check:
    try:
        bundle = Bundle.open(home.indexes / name, verify="full")
        bundle.require_encoder(load_encoder(bundle.manifest.encoder_name, home=home).fingerprint)
        return Check("ok", f"{label} {name}", f"{bundle.count:,} candidates, {_kinds(bundle)}")
    except RankerError as error:
        return Check("bad", f"{label} {name}", str(error))


def _encoder_card(encoder: Encoder) -> dict[str, Any]:
    card = getattr(encoder, "card", None)
    return {"dim": encoder.dim, "fingerprint": encoder.fingerprint, **(asdict(card) if card else {})}


def _indexes(home: Home) -> list[dict[str, Any]]:
    found = []
    for place, where in ((home, "home"), (Home(EMBEDDED), "embedded")):
        for name in index_names(place):
            bundle = Bundle.open(place.indexes / name)
            found.append({"name": name, "where": where, "candidates": bundle.count, "kind": _kinds(bundle)})
    return found


def _kinds(bundle: Bundle) -> str:
    return "+".join(dict.fromkeys(segment.index.kind for segment in bundle.manifest.segments))


def _print_field(key: str, value: Any, indent: int = 0) -> None:
    pad = "  " * indent
    if isinstance(value, dict):
        out.print(f"{pad}[bold]{key}[/]")
        for name, inner in value.items():
            _print_field(name, inner, indent + 1)
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        out.print(f"{pad}[bold]{key}[/]")
        for entry in value:
            out.print(
                f"{pad}  " + ", ".join(f"{name} {inner}" for name, inner in entry.items()), markup=False
            )
    else:
        out.print(f"{pad}[bold]{key}[/] {escape(str(value))}", soft_wrap=True)
