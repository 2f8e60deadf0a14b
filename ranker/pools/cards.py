"""Pool cards: `candidate_pools/<name>/pool.toml` says what a pool is, whose it is, and how to get it."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ranker.config import from_table, read_toml
from ranker.errors import ConfigError, InputError, NotFoundError
from ranker.home import Home, packaged_pools
from ranker.storage import write_bytes
from ranker.types import Utterances, clean_text

CARD_FILE = "pool.toml"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PoolCard:
    """What is known about a pool. `licence` and `commercial_use` are the full corpus's, not the sample's."""

    name: str
    title: str
    licence: str
    commercial_use: bool
    reader: str
    """The format of the raw files: a reader of `ranker.corpora`."""
    utterances: Utterances
    """Which utterances become candidates: the listener's, every reply, or all."""
    split: str = "train"
    description: str = ""
    origin: str = ""
    citation: str = ""
    url: str = ""
    """The archive that `ranker fetch` downloads; empty where there is none to download."""
    sha256: str = ""
    size_bytes: int = 0
    how_to_get: str = ""
    """What to do where there is no URL."""
    sample_licence: str = "CC0-1.0"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} cannot be the name of a pool",
                fix="Use small letters, digits, '-' and '_', at most 64 of them",
            )
        if self.url and not (_SHA256.fullmatch(self.sha256) and self.size_bytes > 0):
            raise ConfigError(f"the card of pool {self.name!r} has a url without sha256 and size_bytes")

    @property
    def next_step(self) -> str:
        """The command that gets the full corpus."""
        return f"ranker fetch {self.name}" if self.url else f"ranker import {self.name} PATH"


def list_cards(home: Home) -> list[PoolCard]:
    """All cards, the home's before the packaged ones of the same name, sorted by name."""
    return [_read_card(file) for _, file in sorted(_card_files(home).items())]


def load_card(name: str, home: Home) -> PoolCard:
    """The card of a pool. Raises NotFoundError with the nearest name, ConfigError for a malformed card."""
    files = _card_files(home)
    if name not in files:
        raise NotFoundError.of("pool", name, files, fix=f"For a pool of your own: ranker import {name} PATH")
    return _read_card(files[name])


def create_card(
    home: Home,
    name: str,
    *,
    title: str = "",
    licence: str = "unstated",
    commercial_use: bool = False,
    description: str = "",
) -> PoolCard:
    """A card for a user's own replies, in the generic format. `import_raw` saves it with the data.

    Raises InputError where the name is taken, ConfigError where it cannot be a name.
    """
    if name in _card_files(home):
        raise InputError(f"there is a pool called {name!r} already", fix="Choose another name")
    return PoolCard(
        name=name,
        title=clean_text(title) or name,
        licence=clean_text(licence) or "unstated",
        commercial_use=commercial_use,
        reader="generic",
        utterances="response",
        description=clean_text(description),
        origin="your own",
        how_to_get=f"ranker import {name} PATH",
    )


def save_card(card: PoolCard, home: Home) -> None:
    """Write the card into the home, unless the pool has one there or in the package."""
    if card.name not in _card_files(home):
        write_bytes(home.pools / card.name / CARD_FILE, _as_toml(card).encode())


def _card_files(home: Home) -> dict[str, Path]:
    """The card file of every pool by the name of its folder; the home's come last and win."""
    folders = (packaged_pools(), home.pools)
    return {file.parent.name: file for folder in folders for file in folder.glob(f"*/{CARD_FILE}")}


def _read_card(file: Path) -> PoolCard:
    card = from_table(PoolCard, read_toml(file), source=str(file))
    if card.name != file.parent.name:
        raise ConfigError(f"{file} calls its pool {card.name!r}", fix=f"Call it {file.parent.name!r}")
    return card


def _as_toml(card: PoolCard) -> str:
    """Texts, flags and numbers only, and clean text: a JSON value is then a TOML value."""
    fields = dataclasses.asdict(card).items()
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields if value != ""
    )
