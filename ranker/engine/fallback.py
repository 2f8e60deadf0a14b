"""When a generator answers in place of the pool: the caller's wish, else a threshold that was measured.

`auto` stands on an artefact, `fallback.json` beside the generator, which `ranker evaluate fallback` writes:
the confidence below which this generator's replies were better than this encoder's best retrieved ones, on
held-out contexts. Where nobody measured it, `auto` never asks the generator.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ranker.config import from_table
from ranker.errors import ConfigError, InputError, IntegrityError
from ranker.home import EMBEDDED, Home
from ranker.storage import current, read_json, write_json

When = Literal["never", "auto", "always"] | float
"""Whether to ask the generator; a number: where the confidence is below it."""

DEFAULT_GENERATOR = "chat"
FILE = "fallback.json"
_WORDS: tuple[Literal["never", "auto", "always"], ...] = ("never", "auto", "always")
_FORMAT = 1
_LOW_CONFIDENCE = 0.5  # more likely not the true reply than it
_LOW = "nothing in the pool fits well: low confidence"


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """The table [fallback]. Raises ConfigError for a value out of range."""

    generator: str = DEFAULT_GENERATOR
    """Its name or folder; empty: none, only the pool answers."""
    when: When = "auto"
    """What is done where a request does not say."""
    max_seconds: float = 8.0
    """The longest that a caller waits for a generated reply before the retrieved one is given."""
    max_concurrent: int = 1
    """Replies generated at once; more wait in line."""
    max_waiting: int = 4
    """Replies that may wait in line; beyond, the retrieved one is given at once."""

    def __post_init__(self) -> None:
        try:
            when_of(self.when)
        except InputError as error:
            raise ConfigError(f"'when' of [fallback]: {error}") from error
        if not 0 < self.max_seconds < math.inf:
            raise ConfigError(f"'max_seconds' of [fallback] must be above 0, not {self.max_seconds}")
        if self.max_concurrent < 1 or self.max_waiting < 0:
            raise ConfigError("[fallback] needs max_concurrent of at least 1, and max_waiting of at least 0")


def when_of(value: str | float) -> When:
    """`never`, `auto`, `always`, or a confidence in [0, 1] as a number or text. Else raises InputError."""
    for word in _WORDS:
        if value == word:
            return word
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0.0 <= number <= 1.0:
        raise InputError(f"fallback must be never, auto, always or a number from 0 to 1, not {value!r}")
    return number


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` tells why a generator is asked, and `note` what a retrieved reply should say of itself."""

    asks_generator: bool
    reason: str = ""
    note: str = ""


def decide(
    when: When, confidence: float | None, generator: str | None, threshold: Callable[[], float | None]
) -> Decision:
    """Whether the generator of this name (None: there is none) is to answer.

    `confidence` is that of the best retrieved reply, None for an encoder that was never calibrated.
    `threshold` gives what was measured for `auto`, None where nothing was; it is called only where needed.
    """
    low = _LOW if confidence is not None and confidence < _LOW_CONFIDENCE else ""
    if generator is None:
        missing = "there is no generator to ask: this is the best retrieved reply"
        return Decision(False, note=low if when in ("never", "auto") else missing)
    if when == "always":
        return Decision(True, "as asked for")
    if when == "never":
        return Decision(False, note=low)
    if confidence is None:
        unknown = "the encoder is not calibrated: there is no confidence to compare"
        return Decision(False, note="" if when == "auto" else unknown)
    limit = threshold() if when == "auto" else when
    if limit is not None and confidence < limit:
        return Decision(True, f"the best retrieved reply has a confidence of {confidence:.0%}")
    return Decision(False, note=low)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The confidence below which a generated reply is preferred, and how that was found."""

    threshold: float
    criterion: str
    """What makes one reply better than another."""
    generator: str
    generator_version: str
    """As of `generator_version`: another version of the generator was not measured."""
    encoder_fingerprint: str
    measured: str
    """On what: the corpus, its split, the rows, the pool."""
    quality_retrieved: float
    """Mean quality on the half that the threshold was not chosen on: always retrieved, ..."""
    quality_generated: float
    """... always generated, ..."""
    quality_with_threshold: float
    """... and as `auto` does."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(f"a threshold must lie in [0, 1], not {self.threshold}")


def write_threshold(found: Threshold, home: Home) -> Path:
    """Keep a threshold beside its generator in the home, in place of one for the same encoder."""
    file = _folder(found.generator, home.generators) / FILE
    others = [one for one in _read(file) if one.encoder_fingerprint != found.encoder_fingerprint]
    write_json(file, {"format": _FORMAT, "thresholds": [asdict(one) for one in (*others, found)]})
    return file


def read_threshold(generator: str, encoder_fingerprint: str, home: Home) -> Threshold | None:
    """The one measured for this version of the generator with this encoder: the home's, else the package's.

    Raises IntegrityError where a file is damaged.
    """
    version = generator_version(generator, home)
    for parent in (home.generators, EMBEDDED / "generators"):
        for found in _read(_folder(generator, parent) / FILE):
            if (found.encoder_fingerprint, found.generator_version) == (encoder_fingerprint, version):
                return found
    return None


def generator_version(generator: str, home: Home) -> str:
    """Changes when the generator is trained again; empty for one without a folder, such as an endpoint."""
    for parent in (home.generators, EMBEDDED / "generators"):
        folder = current(_folder(generator, parent))
        if folder is not None and (folder / "manifest.json").is_file():
            return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()[:16]
    return ""


def _folder(generator: str, parent: Path) -> Path:
    """Of a generator by name; one that is named by its folder stays where it is."""
    given = Path(generator).expanduser()
    return given if len(given.parts) > 1 else parent / generator


def _read(file: Path) -> list[Threshold]:
    if not file.is_file():
        return []
    found = read_json(file)
    try:
        if found["format"] != _FORMAT:
            raise ConfigError(f"of format {found['format']!r}")
        return [from_table(Threshold, one, source=str(file)) for one in found["thresholds"]]
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise IntegrityError(
            f"{file} is not a file of thresholds ({error})", fix="Measure again: ranker evaluate fallback"
        ) from error
