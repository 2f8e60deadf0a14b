"""What an operator may change about safety: the table [safety]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ranker.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SafetySettings:
    """Safety is on unless an operator turns it off, knowingly. Raises ConfigError for values out of range."""

    enabled: bool = True
    """False: replies leave unfiltered, and a crisis is answered like anything else."""
    crisis_threshold: float = 0.5
    """The probability from which a context is a crisis: lower finds more, with more false alarms. Even odds,
    since a crisis that is missed is worse than a message for nothing."""
    reply_threshold: float = 0.8
    """The probability from which a reply is unsafe: the lowest tenth that keeps false alarms below 4 % on
    hard cases that the classifier was not fitted to."""
    turns: int = 2
    """How many of the user's turns are looked at for a crisis, the last one first."""
    messages: Path | None = None
    """A TOML file of messages to answer a crisis with; without it, the packaged ones."""

    def __post_init__(self) -> None:
        for name in ("crisis_threshold", "reply_threshold"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise ConfigError(f"safety.{name} must lie between 0 and 1, not {value}")
        if self.turns < 1:
            raise ConfigError(f"safety.turns must be at least 1, not {self.turns}")
