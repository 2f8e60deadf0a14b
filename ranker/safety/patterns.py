"""Patterns over plain words (see `plain_words`), kept in TOML files of the package: `patterns/*.toml`."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from ranker.config import read_toml
from ranker.errors import ConfigError
from ranker.safety.messages import CATEGORIES, CrisisCategory

FOLDER = Path(__file__).with_name("patterns")
_NAME = re.compile(r"<([a-z_]+)>")

Breach = Literal["insult", "threat", "self-harm", "violence", "hatred", "sexual"]
"""What is wrong with a reply."""
_BREACHES: tuple[Breach, ...] = get_args(Breach)


def read_patterns(path: Path) -> dict[str, re.Pattern[str]]:
    """The patterns of a file, by name: each matches where one of its lines does.

    The table `words` names parts; `<name>` stands for one of them in the lines of the table `patterns`, and
    in the parts that come after it. Raises ConfigError for a file that holds something else.
    """
    tables = read_toml(path)
    parts: dict[str, str] = {}
    found: dict[str, re.Pattern[str]] = {}
    try:
        for name, part in tables["words"].items():
            parts[name] = _NAME.sub(lambda match: parts[match[1]], part)
        for name, lines in tables["patterns"].items():
            whole = "|".join(f"(?:{line})" for line in lines)
            found[name] = re.compile(_NAME.sub(lambda match: parts[match[1]], whole))
    except (KeyError, AttributeError, TypeError, re.error) as error:
        raise ConfigError(f"{path} does not hold patterns: {error!r}") from error
    return found


@lru_cache(maxsize=1)
def _of_crisis() -> dict[str, re.Pattern[str]]:
    """Read when first needed: compiling takes a while."""
    return read_patterns(FOLDER / "crisis.toml")


@lru_cache(maxsize=1)
def _of_replies() -> dict[str, re.Pattern[str]]:
    return read_patterns(FOLDER / "replies.toml")


def without_idioms(words: str) -> str:
    """Plain words in which each figure of speech is replaced by the word `idiom`."""
    return " ".join(_of_crisis()["idioms"].sub(" idiom ", words).split())


def is_distant(words: str) -> bool:
    """Whether a sign of fiction, news, the past, a good end or a joke is in the plain words."""
    return _of_crisis()["distance"].search(words) is not None


def stated(words: str) -> tuple[CrisisCategory, ...]:
    """The categories of crisis that plain words without idioms state."""
    patterns = _of_crisis()
    return tuple(category for category in CATEGORIES if patterns[category].search(words))


def breach(words: str) -> Breach | None:
    """What is wrong with a reply of these plain words, or None where no pattern matches."""
    patterns = _of_replies()
    return next((name for name in _BREACHES if patterns[name].search(words)), None)
