"""`ranker fetch generator:chat` and `ranker import generator:chat`: the base model of a generator."""

from __future__ import annotations

from pathlib import Path

from ranker.cli.output import note, steps
from ranker.errors import NotFoundError
from ranker.home import Home

PREFIX = "generator:"
_WITH_BASE = ("chat",)


def fetch_generator(name: str, home: Home) -> None:
    """Download the base model of the generator `name` ("generator:chat")."""
    from ranker.generation.chat_base import base_card, fetch_base

    _check(name)
    card = base_card()
    note(f"{card.hub_id}: {card.licence}")
    with steps() as step:
        fetch_base(card, home, step(f"fetching {name}", card.size_bytes))
    note('Done. Next: ranker query --fallback always "..."')


def import_generator(name: str, path: Path, home: Home, *, licence: str) -> None:
    """Take the base model of the generator `name` from a folder."""
    from ranker.generation.chat_base import import_base

    _check(name)
    folder = import_base(path.expanduser(), home, licence=licence)
    note(f"Imported: {folder.manifest.origin}.")


def _check(name: str) -> None:
    generator = name.removeprefix(PREFIX)
    if generator not in _WITH_BASE:
        raise NotFoundError.of("base model to get for the generator", generator, _WITH_BASE)
