"""Every setting of the server: the tables [server], [fallback], [generation] and [safety] of ranker.toml, or
RANKER_<TABLE>_<KEY>."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ranker.config import settings
from ranker.engine import FallbackSettings
from ranker.errors import ConfigError
from ranker.feedback import MAX_ENTRIES
from ranker.generation import GenerationSettings
from ranker.safety import SafetySettings

TABLE = "server"
_DEADLINE_SHARE = 0.8  # of a request's time, for the generator: the rest is for the retrieved reply
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits are for each worker process. Raises ConfigError where a value is out of range."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """Processes, each with an encoder of its own; the indexes are shared, being mapped from disk."""
    threads: int | None = None
    """Batches that a process works on at once; None: the cores, divided among the workers."""
    home: Path | None = None
    indexes: tuple[str, ...] = ()
    """Names of the indexes to rank from; none: the default one."""
    encoder: str | None = None
    """None: the one that the indexes were built with."""

    api_keys: tuple[str, ...] | str = field(default=(), repr=False)
    """A list, or a text of several keys with commas between. Without any, everybody may call."""
    api_keys_file: Path | None = None
    """One key per line; lines that start with # do not count."""
    cors_origins: tuple[str, ...] = ()
    """Web pages of these origins may call, such as https://chat.example.org; "*": of all."""

    max_concurrency: int = 64
    """Requests in work or waiting; more are refused with 429."""
    max_body_bytes: int = 1 << 20
    max_turns: int = 100
    max_candidates: int = 1000
    """Texts in one request to score, rerank or embed."""
    max_k: int = 100
    deadline_seconds: float = 10.0
    """After this time a request is answered with 504."""

    batch_size: int = 32
    """Texts that are encoded together at most, where they are of several requests."""
    batch_wait_ms: float = 2.0
    """How long a batch waits for more requests while another one is in work. A lone request never waits."""
    reload_seconds: float = 2.0
    """How often to look for a new version of an index; 0: never."""
    drain_seconds: float = 1.0
    """After SIGTERM, how long new connections are still taken while /readyz already says no."""
    shutdown_seconds: int = 30
    """After that, how long requests in work may take to end."""

    feedback: bool = True
    """Take reports and edits, and keep reported candidates back."""
    max_feedback: int = MAX_ENTRIES
    """Reports and edits that are kept; where all are still needed, more are refused with 429."""
    page: bool = True
    """Show the chat page at /."""
    access_log: bool = False

    fallback: FallbackSettings = field(default_factory=FallbackSettings)
    """The generator, and when it answers: a table of its own, [fallback]."""
    generation: GenerationSettings | None = None
    """How it writes: the table [generation]."""
    safety: SafetySettings = field(default_factory=SafetySettings)
    """The table [safety]."""

    @classmethod
    def read(cls, file: Path | None = None, flags: Mapping[str, Any] | None = None) -> ServerSettings:
        """All tables of a file; the environment goes before it, and `flags` of [server] before that. Raises
        ConfigError."""
        return replace(
            settings(cls, TABLE, file=file, flags=flags),
            fallback=settings(FallbackSettings, "fallback", file=file),
            generation=settings(GenerationSettings, "generation", file=file),
            safety=settings(SafetySettings, "safety", file=file),
        )

    def __post_init__(self) -> None:
        at_least: dict[str, float] = {
            "port": 0,
            "workers": 1,
            "max_concurrency": 1,
            "max_body_bytes": 1,
            "max_turns": 1,
            "max_candidates": 1,
            "max_k": 1,
            "max_feedback": 1,
            "batch_size": 1,
            "batch_wait_ms": 0,
            "reload_seconds": 0,
            "drain_seconds": 0,
            "shutdown_seconds": 0,
        }
        for name, least in at_least.items():
            if not getattr(self, name) >= least:
                raise ConfigError(
                    f"{name!r} of [{TABLE}] must be at least {least}, not {getattr(self, name)}"
                )
        if not self.deadline_seconds > 0:
            raise ConfigError(f"'deadline_seconds' of [{TABLE}] must be above 0")
        if self.port > 65535:
            raise ConfigError(f"'port' of [{TABLE}] must be at most 65535, not {self.port}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"'threads' of [{TABLE}] must be at least 1, not {self.threads}")

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach the server."""
        return self.host not in _LOOPBACK

    @property
    def generation_seconds(self) -> float:
        """How long a request waits for a generated reply: it must not miss its own deadline for it."""
        return min(self.fallback.max_seconds, _DEADLINE_SHARE * self.deadline_seconds)

    def threads_per_worker(self) -> int:
        return self.threads or max(1, _available_cores() // self.workers)

    def keys(self) -> tuple[str, ...]:
        """All API keys. Raises ConfigError where the file cannot be read or names none: an operator who asks
        for keys must not end up with an open server."""
        given = self.api_keys.split(",") if isinstance(self.api_keys, str) else list(self.api_keys)
        if self.api_keys_file is not None:
            try:
                lines = self.api_keys_file.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot read the API keys in {self.api_keys_file}: {error}") from error
            in_file = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
            if not in_file:
                raise ConfigError(f"{self.api_keys_file} names no API key")
            given += in_file
        return tuple(dict.fromkeys(key for key in map(str.strip, given) if key))


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
