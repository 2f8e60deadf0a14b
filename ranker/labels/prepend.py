"""Prepend-k: the most probable labels of a text, shown to an encoder as tokens before the text.

Contexts and candidates get the labels predicted of themselves; each label is one token, `[emotion:proud]`.
The text that is stored and shown stays clean. A model that was trained so keeps, in a folder of its own, the
very labeler it was trained with, since another one would show it other tokens:

    prepend/prepend.json    kind, k, and the hash of the label model
    prepend/manifest.json   the fastText label model, with its numbers beside it
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError
from ranker.home import Home
from ranker.labels.compact import read_fasttext
from ranker.labels.fasttext import FastTextLabeler
from ranker.labels.loading import model_folder
from ranker.labels.store import Manifest, read_manifest
from ranker.labels.taxonomy import as_kind
from ranker.storage import MANIFEST, read_json, storage_errors, write_bytes, write_json
from ranker.types import LabelKind

FOLDER = "prepend"
MOST_LABELS = 5
_SETTING = "prepend.json"


@dataclass(frozen=True, slots=True)
class Prepend:
    """The k most probable labels of a kind, before contexts and candidates when they are encoded.

    `sha256` identifies the label model by what it answers, not by what was measured of it.
    Raises ConfigError where k is not within 1 and 5.
    """

    kind: LabelKind
    k: int = 1
    sha256: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_LABELS:
            raise ConfigError(f"1 to {MOST_LABELS} labels can be prepended, not {self.k}")

    @classmethod
    def parse(cls, text: str) -> Prepend:
        """From `kind:k`, the label model still open. Raises ConfigError, or NotFoundError for the kind."""
        kind, colon, k = text.partition(":")
        if not colon or not k.isdecimal():
            raise ConfigError(f"{text!r} is not of the form kind:k", fix="For example: emotion:1 or topic:3")
        return cls(as_kind(kind), int(k))

    def __str__(self) -> str:
        return f"{self.kind}:{self.k}"


class Prepender:
    """Predicts the label tokens that go before a text. Threads may share it."""

    def __init__(self, setting: Prepend, labeler: FastTextLabeler, source: Path) -> None:
        """`source` is the label model's folder; see `open_prepender` and `read_prepender`."""
        self.setting = setting
        self._labeler = labeler
        self._files = _files_of(source)

    @property
    def tokens(self) -> dict[str, str]:
        """The token of every label that may be predicted, with the label's name in words."""
        return {self._token(name): name for name in self._labeler.names}

    def tokens_of(self, text: str) -> list[str]:
        """The k tokens of a text, most probable label first; none where there is no word to judge by."""
        (labels,) = self._labeler.predict([text], self.setting.k)
        return [self._token(label.name) for label in labels]

    def save(self, folder: Path) -> None:
        """Write setting and label model into the folder of a model, for `read_prepender`."""
        for name, data in self._files.items():
            write_bytes(folder / FOLDER / name, data)
        write_json(folder / FOLDER / _SETTING, asdict(self.setting))

    def _token(self, name: str) -> str:
        return f"[{self.setting.kind}:{name}]"


def open_prepender(setting: Prepend, home: Home | None = None) -> Prepender:
    """With the label model of the home, else of the package. Raises NotFoundError or IntegrityError."""
    folder = model_folder(setting.kind, home)
    known = Prepend(setting.kind, setting.k, _identity(read_manifest(folder)))
    return Prepender(known, read_fasttext(folder), folder)


def read_prepender(model: Path, expected: Prepend | None = None) -> Prepender:
    """The one saved with a model. Raises IntegrityError where it is missing or damaged, or where it is not
    the `expected` one."""
    folder = model / FOLDER
    table = read_json(folder / _SETTING)
    try:
        if not isinstance(table, dict):
            raise ConfigError(f"{folder / _SETTING} is not a table")
        setting = from_table(Prepend, table, source=str(folder / _SETTING))
    except ConfigError as error:
        raise IntegrityError(error.message) from error
    manifest = read_manifest(folder)
    if (manifest.kind, _identity(manifest)) != (setting.kind, setting.sha256):
        raise IntegrityError(f"the label model in {folder} is not the one that the encoder was trained with")
    if expected not in (None, setting):
        raise IntegrityError(f"{folder} prepends {setting}, but the encoder needs {expected}")
    return Prepender(setting, read_fasttext(folder), folder)


def has_prepender(model: Path) -> bool:
    """Whether the model in a folder was trained with labels prepended."""
    return (model / FOLDER / _SETTING).is_file()


def _identity(manifest: Manifest) -> str:
    """The hash of all that decides what a label model predicts."""
    shape = asdict(manifest.fasttext) if manifest.fasttext else None
    made_of = [manifest.kind, manifest.labels, shape, manifest.sha256]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def _files_of(folder: Path) -> dict[str, bytes]:
    """The files of a label model, held so that it can be saved though its folder was trained over since."""
    numbers = read_manifest(folder).file
    with storage_errors(folder):
        return {name: (folder / name).read_bytes() for name in (numbers, MANIFEST)}
