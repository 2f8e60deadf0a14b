"""The raw data behind a pool: the full corpus where the home has it, else the bundled sample.

A corpus is copied or unpacked beside the old one, checked, and only then put in its place.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ranker.errors import InputError, NotFoundError
from ranker.home import Home, packaged_pools
from ranker.pools.archives import is_archive, unpack
from ranker.pools.cards import PoolCard, save_card
from ranker.storage import current, exclusive, publish, staged_folder

Validate = Callable[[Path], None]
"""Raises where a folder is not what the pool's reader needs."""


@dataclass(frozen=True, slots=True)
class RawData:
    """A folder in the format of the pool's reader."""

    path: Path
    is_sample: bool


def raw_data(card: PoolCard, home: Home, *, sample: bool = False) -> RawData:
    """The full corpus of a pool, or its sample where the home has no corpus or `sample` is asked for.

    Raises NotFoundError where neither is there.
    """
    raw = home.pools / card.name / "raw"
    if not sample and (full := current(raw)) is not None:
        return RawData(full, is_sample=False)
    if not sample and raw.is_dir() and any(raw.iterdir()):  # put there by hand
        return RawData(raw, is_sample=False)
    for folder in (home.pools, packaged_pools()):
        if (folder / card.name / "sample").is_dir():
            return RawData(folder / card.name / "sample", is_sample=True)
    what = "sample" if sample else "data"
    raise NotFoundError(
        f"there is no {what} for pool {card.name!r} in {home.root}", fix=f"Run: {card.next_step}"
    )


def import_raw(card: PoolCard, path: Path, home: Home, *, validate: Validate) -> Path:
    """Take a folder, file or archive that the user has as the full corpus, replacing any that was there.

    Raises what `validate` raises, and IntegrityError for a damaged or unsafe archive; the old stays then.
    Returns the folder that holds the corpus now.
    """
    if not path.exists():
        raise NotFoundError(f"there is no {path}", fix="Give a folder, file or archive")
    with exclusive(home.pools / card.name, "importing"):
        return install(card, path, home, validate=validate)


def install(card: PoolCard, path: Path, home: Home, *, validate: Validate, name: str = "") -> Path:
    """`import_raw` for a caller that holds the pool's lock; a single file is stored as `name`, if given."""
    folder = home.pools / card.name
    if path.is_dir():
        validate(path)
        if folder.resolve().is_relative_to(path.resolve()):
            raise InputError(f"{path} contains the home itself", fix="Give the folder of the corpus")
    with staged_folder(folder) as staged:
        if path.is_dir():
            shutil.copytree(path, staged, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
        elif is_archive(path):
            unpack(path, staged)
        else:
            shutil.copyfile(path, staged / (name or path.name))
        validate(staged)
        final = publish(staged, folder / "raw")
    save_card(card, home)
    return final
