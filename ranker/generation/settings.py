"""How a generator answers: its limits and its way of decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ranker.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """The table `[generation]`. A generator that has no use for a setting leaves it unread."""

    max_seconds: float = 8.0
    """Hard limit of one reply, from the call to its last token; loading the weights does not count."""
    max_tokens: int = 40
    """Of a reply."""
    decoding: Literal["auto", "beam", "sample"] = "auto"
    """auto: the way that suits the generator."""
    beams: int = 6
    groups: int = 3
    """Of diverse beam search, with equally many beams each; 1: plain beam search."""
    diversity_penalty: float = 0.5
    """In nats, for each earlier group that chose the same token at the same step."""
    length_penalty: float = 1.0
    """A finished beam scores its log probability / tokens ** length_penalty."""
    top_k: int = 40
    """Sample among the k most probable tokens; 0: among all."""
    top_p: float = 0.9
    """Sample among the fewest tokens that together have this probability; 1: among all."""
    temperature: float = 0.8
    """Below 1, probable tokens become more so."""
    repeat_ngram: int = 3
    """No run of so many tokens twice in a reply; 0: anything goes."""
    seed: int | None = 0
    """Of sampling: the same context gets the same reply. None: another one each time."""
    persona: str = ""
    """Who answers, in a sentence or two; empty: the generator's own."""

    def __post_init__(self) -> None:
        for name in ("max_seconds", "max_tokens", "beams", "groups", "temperature"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("diversity_penalty", "length_penalty", "top_k", "repeat_ngram"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.beams % self.groups:
            raise ConfigError(f"beams ({self.beams}) must be a multiple of groups ({self.groups})")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed must be 0 or more, not {self.seed}")
