"""Where things are: the home (pools, indexes, models) and what the package itself brings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ranker.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
EMBEDDED = _PACKAGE / "embedded"
"""Package data: the default encoder and the indexes of the sample pools."""


def _clone() -> Path | None:
    """The repository, when the package runs from a clone of it."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "candidate_pools").is_dir() else None


def packaged_pools() -> Path:
    """The folder of pool cards and samples that came with the package."""
    installed = _PACKAGE / "candidate_pools"
    return installed if installed.is_dir() else _PACKAGE.parent / "candidate_pools"


@dataclass(frozen=True, slots=True)
class Home:
    """A folder that holds a user's pools, indexes and models."""

    root: Path

    @classmethod
    def find(cls, root: str | Path | None = None) -> Home:
        """`root`, else $RANKER_HOME, else the clone that the package is in, else the user's data folder."""
        chosen = root or os.environ.get("RANKER_HOME") or _clone() or platformdirs.user_data_path("ranker")
        try:
            return cls(Path(chosen).expanduser().absolute())
        except RuntimeError as error:
            raise ConfigError(f"{chosen} names the home of an unknown user") from error

    @property
    def pools(self) -> Path:
        return self.root / "candidate_pools"

    @property
    def indexes(self) -> Path:
        return self.root / "indexes"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def generators(self) -> Path:
        return self.root / "generators"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def config_file(self) -> Path:
        return self.root / "ranker.toml"
