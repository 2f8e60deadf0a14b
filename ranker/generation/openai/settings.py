"""Where the endpoint is and how it may be used: the table [openai] of ranker.toml, or RANKER_OPENAI_<KEY>."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from ranker.errors import ConfigError

TABLE = "openai"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_EXAMPLE = 'such as base_url = "http://127.0.0.1:11434/v1"'


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """The limits of a reply, its temperature and the persona are GenerationSettings'.

    The key itself is never a setting: it is read from the environment for each request.
    Raises ConfigError where a value is out of range or would give the key away.
    """

    base_url: str = ""
    """What stands before /chat/completions, such as https://api.openai.com/v1."""
    model: str = ""
    """As the endpoint calls it."""
    key_variable: str = ""
    """Name of the environment variable that holds the key; empty: no key is sent."""
    allow_plain_key: bool = False
    """Send the key over http, where everybody on the way can read it, to other machines too."""
    timeout_seconds: float = 5.0
    """Of one attempt. A stream that has begun may take what is left of max_seconds."""
    retries: int = 2
    """Further attempts after 429, 500, 502, 503, 504, a timeout or a lost connection, while there is time."""
    backoff_seconds: float = 0.5
    """Wait before the first retry; it doubles each time. A longer Retry-After is kept to."""
    requests_per_minute: int = 60
    """In any 60 seconds, retries among them; more fail at once."""
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the endpoint calls the limit of a reply; OpenAI's newer models want the second."""
    examples: int = 3
    """How many of the best retrieved replies to show the model; 0: none."""
    max_context_characters: int = 8000
    """Of the conversation; the newest are kept."""

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        if not self.model.strip():
            raise ConfigError(f"[{TABLE}] has no model", fix="Name one that the endpoint has: model = ...")
        if self.key_variable and not _VARIABLE.fullmatch(self.key_variable):
            # The value is not shown: it may be the key itself.
            raise ConfigError(
                f"[{TABLE}] key_variable must be the name of an environment variable, in capitals, not a key"
            )
        for name, least in (("retries", 0), ("backoff_seconds", 0), ("examples", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"[{TABLE}] {name} must be at least {least}, not {getattr(self, name)}")
        for name in ("timeout_seconds", "requests_per_minute", "max_context_characters"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"[{TABLE}] {name} must be above 0, not {getattr(self, name)}")
        if self.key_variable and not self.is_encrypted and not self.allow_plain_key and not self._is_loopback:
            raise ConfigError(
                f"[{TABLE}] base_url would send the key over plain http to {self.host}",
                fix="Use https, or allow it knowingly: allow_plain_key = true",
            )

    @property
    def is_encrypted(self) -> bool:
        return self._parts.scheme == "https"

    @property
    def address(self) -> str:
        """Host and, where given, port, as written in the URL: for people and for the Host header."""
        return self._parts.netloc

    @property
    def host(self) -> str:
        return self._parts.hostname or ""

    @property
    def port(self) -> int:
        return self._parts.port or (443 if self.is_encrypted else 80)

    @property
    def path(self) -> str:
        """Of the chat completions."""
        return self._parts.path.rstrip("/") + "/chat/completions"

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.base_url)

    @property
    def _is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _check_url(url: str) -> None:
    """The URL is shown in no message: people paste keys into it."""
    if not url:
        raise ConfigError(
            f"[{TABLE}] has no base_url",
            fix=f"Put it into ranker.toml, {_EXAMPLE}, or into RANKER_{TABLE.upper()}_BASE_URL",
        )
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ConfigError(f"[{TABLE}] base_url may only have printable ASCII characters and no space")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise ConfigError(f"[{TABLE}] base_url is not a URL", fix=f"Write it {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"[{TABLE}] base_url must begin with https:// or http:// and a host", fix=f"Write it {_EXAMPLE}"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"[{TABLE}] base_url may not hold a name or password",
            fix="Put the key into an environment variable and its name into key_variable",
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigError(
            f"[{TABLE}] base_url may not have a query or a fragment", fix=f"Write it {_EXAMPLE}"
        )
