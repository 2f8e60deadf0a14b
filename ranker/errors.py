"""Every error that the package raises on purpose.

    RankerError
    ├── InputError          text, k, or a filter that cannot be used as given
    ├── ConfigError         a setting that is unknown or out of range
    ├── NotFoundError       a pool, index, encoder or file that is not there
    ├── CorpusError         a raw corpus without a usable row
    ├── StorageError        a disk that is full, read-only or locked by another process
    │   └── FullError       a store that holds as many entries as it may
    ├── DownloadError       a transfer that failed or did not match its checksum
    ├── IntegrityError      a file that is corrupt, truncated or of another kind
    ├── MismatchError       an index made by another encoder than the one at hand
    ├── MissingExtraError   a feature whose optional dependencies are not installed
    ├── TrainingError       a training run that cannot start, go on or be exported
    └── GenerationError     a generator that is down, broken or too slow

A message is one line: what happened, where, and (after the full stop) what to run next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RankerError(Exception):
    """Root of the tree. `fix` names the next step and is shown after the message."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        self.message = " ".join(message.split())
        self.fix = " ".join(fix.split())
        super().__init__(f"{self.message}. {self.fix}" if self.fix else self.message)


class InputError(RankerError):
    """Text, k, or a filter that cannot be used as given."""


class ConfigError(RankerError):
    """A setting that is unknown or out of range."""


class NotFoundError(RankerError):
    """A pool, index, encoder or file that is not there."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], *, fix: str = "") -> NotFoundError:
        """An unknown `name`, with the nearest of the `known` names suggested."""
        names = sorted(known)
        near = nearest(name, names)
        hint = f"Did you mean {near!r}?" if near else f"Known: {', '.join(names) or 'none'}."
        return cls(f"no {kind} called {name!r}", fix=f"{hint} {fix}")


class CorpusError(RankerError):
    """A raw corpus without a usable row."""


class StorageError(RankerError):
    """A disk that is full, read-only or locked by another process."""


class FullError(StorageError):
    """A store that holds as many entries as it may."""


class DownloadError(RankerError):
    """A transfer that failed or did not match its checksum."""


class IntegrityError(RankerError):
    """A file that is corrupt, truncated or of another kind."""


class MismatchError(RankerError):
    """An index made by another encoder than the one at hand."""


class MissingExtraError(RankerError):
    """A feature whose optional dependencies are not installed."""

    @classmethod
    def of(cls, feature: str, extra: str) -> MissingExtraError:
        return cls(
            f"{feature} needs the extra {extra!r}",
            fix=f'Run: pip install "response-ranker[{extra}]"',
        )


class TrainingError(RankerError):
    """A training run that cannot start, go on or be exported."""


class GenerationError(RankerError):
    """A generator that is down, broken or too slow."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever the case, or None where none is alike."""
    folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else None
