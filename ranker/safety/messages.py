"""What a crisis is answered with: messages written by people, in a TOML file that an operator may replace."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from ranker.config import read_toml
from ranker.errors import ConfigError
from ranker.types import clean_text

CrisisCategory = Literal["self-harm", "violence", "emergency"]
CATEGORIES: tuple[CrisisCategory, ...] = get_args(CrisisCategory)

PACKAGED = Path(__file__).with_name("messages.toml")
"""The messages that came with the package: international, without a phone number that may be wrong."""


def fixed_message(category: CrisisCategory, path: Path | None = None) -> str:
    """The message for a crisis of this category, from the operator's file `path` or the packaged one.

    Raises ConfigError where the file is missing, malformed, or lacks a category.
    """
    return read_messages(path)[category]


@lru_cache(maxsize=8)
def read_messages(path: Path | None = None) -> dict[CrisisCategory, str]:
    """All messages of a file, each on one line. Raises as `fixed_message` does. A file is read once."""
    file = path or PACKAGED
    tables = read_toml(file)
    unknown = sorted(set(tables) - set(CATEGORIES))
    if unknown:
        raise ConfigError(f"unknown category {unknown[0]!r} in {file}", fix=f"Known: {', '.join(CATEGORIES)}")
    found: dict[CrisisCategory, str] = {}
    for category in CATEGORIES:
        text = tables.get(category)
        if not isinstance(text, str) or not (text := clean_text(text)):
            raise ConfigError(f"{file} has no message for {category!r}", fix=f'Add: {category} = "..."')
        found[category] = text
    return found
