"""Which indexes there are, and which of their candidates may be ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranker.bundle import Bundle
from ranker.errors import NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.storage import is_published
from ranker.types import LabelKind

DEFAULT_INDEX = "ed"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which candidates may be ranked at all; an empty field allows everything."""

    pools: tuple[str, ...] = ()
    emotions: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    commercial_only: bool = False
    blocked: frozenset[str] = frozenset()
    """Ids of candidates that may not be ranked, such as reported ones."""


def index_folder(name: str, home: Home) -> Path:
    """Where the index `name` is: in the home, else among those embedded in the package."""
    embedded = Home(EMBEDDED)
    for place in (home, embedded):
        if is_published(place.indexes / name):
            return place.indexes / name
    known = {*index_names(home), *index_names(embedded)}
    raise NotFoundError.of("index", name, known, fix=f"To build it: ranker build-index --pool {name}")


def index_names(home: Home) -> list[str]:
    """Names of the indexes built in a home."""
    if not home.indexes.is_dir():
        return []
    return sorted(folder.name for folder in home.indexes.iterdir() if is_published(folder))


def allowed_rows(bundles: Sequence[Bundle], filters: Filters) -> list[NDArray[np.bool_] | None]:
    """For each bundle, a mask of the rows that the filters allow; None: all. Reported ids are not part of it.

    Raises NotFoundError for a pool or label that no bundle has.
    """
    known = {pool.name for bundle in bundles for pool in bundle.manifest.pools}
    for pool in filters.pools:
        if pool not in known:
            raise NotFoundError.of("pool", pool, known, fix="It must be part of an index that is open")
    require_labels(bundles, "emotion", filters.emotions)
    require_labels(bundles, "intent", filters.intents)
    return [
        bundle.mask(
            pools=filters.pools or None,
            emotions=filters.emotions or None,
            intents=filters.intents or None,
            licences=filters.licences or None,
            commercial_only=filters.commercial_only,
        )
        for bundle in bundles
    ]


def require_labels(bundles: Sequence[Bundle], kind: LabelKind, names: Sequence[str]) -> None:
    """Raises NotFoundError for a label that no candidate has."""
    if not names:
        return
    known = {name for bundle in bundles for name in bundle.labels(kind)}
    for name in names:
        if name not in known:
            raise NotFoundError.of(kind, name, known)
