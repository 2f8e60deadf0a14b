"""Generators: what answers when nothing in the pool fits.

Each lives in a module of its own, which is imported when its generator is asked for. A module offers

    load(root: Path, settings: GenerationSettings, home: Home) -> Fallback

which opens the folder `root`, where the generator has one, and reads no weights yet.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol

from ranker.errors import NotFoundError
from ranker.generation.folder import kind_of
from ranker.generation.local import LocalGenerator
from ranker.generation.settings import GenerationSettings
from ranker.home import EMBEDDED, Home
from ranker.storage import is_published
from ranker.types import Fallback

GENERATORS = ("chat", "openai", "seq2seq")
"""The kinds of generators. A trained one has the name that it was given, by default its kind's."""
_WITHOUT_FOLDER = ("openai",)

__all__ = ["GENERATORS", "GenerationSettings", "LocalGenerator", "installed", "load_generator"]


class _Module(Protocol):
    def load(self, root: Path, settings: GenerationSettings, home: Home) -> Fallback: ...


def load_generator(
    name_or_path: str | Path, home: Home | None = None, settings: GenerationSettings | None = None
) -> Fallback:
    """The generator of a name or folder: one of the home's, else one that comes with the package.

    No weights are read before the first reply. Raises NotFoundError where it is not installed, IntegrityError
    for a damaged folder, ConfigError, MissingExtraError.
    """
    home = home or Home.find()
    settings = settings or GenerationSettings()
    name = str(name_or_path)
    if name in _WITHOUT_FOLDER:
        return _module(name).load(home.generators / name, settings, home)
    for root in (home.generators / name, EMBEDDED / "generators" / name, Path(name).expanduser()):
        if is_published(root):
            return _module(kind_of(root)).load(root, settings, home)
    if name in GENERATORS:
        raise NotFoundError(
            f"the generator {name!r} is not installed in {home.generators}",
            fix=f"Train it: ranker train-generator {name} --help",
        )
    raise NotFoundError.of("generator", name, {*GENERATORS, *installed(home)}, fix="A folder will do as well")


def installed(home: Home) -> list[str]:
    """Names of the generators that have their weights here: the home's and the package's."""
    found: set[str] = set()
    for parent in (home.generators, EMBEDDED / "generators"):
        for root in parent.iterdir() if parent.is_dir() else ():
            if is_published(root) and kind_of(root) in GENERATORS:
                found.add(root.name)
    return sorted(found)


def _module(kind: str) -> _Module:
    if kind not in GENERATORS:
        raise NotFoundError.of("kind of generator", kind, GENERATORS)
    module: _Module = import_module(f"ranker.generation.{kind}")
    return module
