"""Cleaning: from raw utterances to the candidates of a pool, with a count of what was dropped and why."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from ranker.errors import ConfigError
from ranker.safety.profanity import is_profane
from ranker.types import Candidate, clean_text

_MARKUP = re.compile(
    r"https?://\S+|www\.\S+|\[[^\]]*\]\([^)]*\)|\[(?:deleted|removed)\]|<[^<>]{1,200}>|&#?\w{2,8};",
    re.IGNORECASE,
)
_NOT_A_WORD_CHARACTER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class CleaningSettings:
    """Which utterances make a candidate. Limits are inclusive; words are separated by spaces.

    With `near_duplicates`, texts that differ only in case, punctuation and spacing count as one.
    """

    min_chars: int = 2
    max_chars: int = 600
    min_words: int = 1
    max_words: int = 100
    near_duplicates: bool = True
    profane: Literal["keep", "drop"] = "drop"

    def __post_init__(self) -> None:
        if not (0 <= self.min_chars <= self.max_chars and 0 <= self.min_words <= self.max_words):
            raise ConfigError("cleaning: each minimum must be 0 or more and at most its maximum")


@dataclass(slots=True)
class CleaningReport:
    """What cleaning did: `seen` texts, `kept` ones, the `dropped` by reason, and how many were profane."""

    seen: int = 0
    kept: int = 0
    profane: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """One line for people, such as `kept 98 of 100 (dropped: 2 near duplicates)`."""
        line = f"kept {self.kept:,} of {self.seen:,}"
        if self.dropped:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
            line += f" (dropped: {counts})"
        if self.profane and not self.dropped["profane"]:
            line += f"; {self.profane:,} of them profane"
        return line


def clean(
    candidates: Iterable[Candidate], settings: CleaningSettings
) -> tuple[list[Candidate], CleaningReport]:
    """The usable candidates in the order given, their texts normalised; the first of duplicates stays.

    Takes time and memory in proportion to the number of candidates.
    """
    report = CleaningReport()
    kept: list[Candidate] = []
    first_text: dict[str, str] = {}
    for candidate in candidates:
        report.seen += 1
        text = clean_text(candidate.text)
        reason = _unusable(text, settings)
        if not reason and is_profane(text):
            report.profane += 1
            reason = "profane" if settings.profane == "drop" else ""
        if not reason:
            key = _near_key(text) if settings.near_duplicates else text
            if key in first_text:
                reason = "exact duplicates" if first_text[key] == text else "near duplicates"
            else:
                first_text[key] = text
        if reason:
            report.dropped[reason] += 1
        else:
            kept.append(candidate if text == candidate.text else replace(candidate, text=text))
    report.kept = len(kept)
    return kept, report


def _unusable(text: str, settings: CleaningSettings) -> str:
    """Why a text makes no candidate; empty where it does."""
    if not text:
        return "empty"
    if len(text) > settings.max_chars:
        return "too long"
    words = text.count(" ") + 1  # clean text has single spaces
    if words > settings.max_words:
        return "too long"
    if not _has_words(text):
        return "without words"
    if len(text) < settings.min_chars or words < settings.min_words:
        return "too short"
    return ""


def _has_words(text: str) -> bool:
    """Whether letters or digits are left beside web addresses and markup."""
    if any(mark in text for mark in ("://", "www.", "WWW.", "[", "<", "&")):
        text = _MARKUP.sub(" ", text)
    return any(map(str.isalnum, text))


def _near_key(text: str) -> str:
    """The text without case, punctuation and spacing. Marks that belong to a letter are kept."""
    key = text.casefold()
    if key.isascii():
        return _NOT_A_WORD_CHARACTER.sub("", key)
    key = unicodedata.normalize("NFKC", key)
    return "".join(char for char in key if char.isalnum() or unicodedata.category(char)[0] == "M")
