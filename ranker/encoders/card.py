"""The card of an encoder folder, `encoder.json`: what the folder holds and how its files are used.

    encoder.json      this card, written last
    model.onnx        input_ids, attention_mask (rows, tokens; int64) -> vector (rows, dim; unit length)
    tokenizer.json    of the `tokenizers` library
    prepend/          see ranker.labels.prepend; only where labels are prepended

Two towers with weights of their own have two graphs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ranker.config import from_table
from ranker.encoders.layout import LAYOUT_VERSION, LayoutSettings
from ranker.errors import ConfigError, IntegrityError
from ranker.labels import Prepend
from ranker.storage import read_checked, read_json, write_json
from ranker.types import Calibration

CARD_FILE = "encoder.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file of the folder as it was written; `size` in bytes."""

    name: str
    sha256: str
    size: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        data = path.read_bytes()
        return cls(path.name, hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, such as P@1,100 on a split, with its name."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the weights come from, and what was measured of them."""

    base_model: str
    licence: str
    note: str = ""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class EncoderCard:
    """All of `encoder.json`. `batch_size` is the rows that go through the graph at once."""

    name: str
    dim: int
    batch_size: int
    pooling: str
    layout: LayoutSettings
    context_graph: str
    candidate_graph: str
    tokenizer: str
    files: tuple[FileStamp, ...]
    origin: Origin
    prepend: Prepend | None = None
    calibration: Calibration | None = None
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Of the weights, tokenizer, layout and prepend setting; not of name, figures or calibration."""
        stamps = {stamp.name: stamp.sha256 for stamp in self.files}
        made_of = {
            "context": stamps[self.context_graph],
            "candidate": stamps[self.candidate_graph],
            "tokenizer": stamps[self.tokenizer],
            "layout": [LAYOUT_VERSION, asdict(self.layout)],
            "prepend": asdict(self.prepend) if self.prepend else None,
        }
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Write the card into `folder`, whose other files must be there."""
        write_json(folder / CARD_FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> EncoderCard:
        """Raises IntegrityError where the card is missing, of another kind or contradicts itself."""
        path = folder / CARD_FILE
        table = read_json(path)
        if not isinstance(table, dict) or table.get("format") != FORMAT:
            raise IntegrityError(f"{path} is not an encoder card of format {FORMAT}")
        try:
            card = from_table(cls, table, source=str(path))
        except ConfigError as error:
            raise IntegrityError(error.message) from error
        card._check(path)
        return card

    def read_file(self, folder: Path, name: str) -> bytes:
        """The bytes of one of the card's files: what was hashed is what the caller then parses.

        Raises IntegrityError where the file is missing or differs from its stamp.
        """
        stamp = next(stamp for stamp in self.files if stamp.name == name)
        return read_checked(folder / name, size=stamp.size, sha256=stamp.sha256, fix=_REPAIR)

    def _check(self, path: Path) -> None:
        stamped = {stamp.name for stamp in self.files}
        for name in (self.context_graph, self.candidate_graph, self.tokenizer):
            if name not in stamped:
                raise IntegrityError(f"{path} has no sha256 for {name!r}")
        if any(Path(name).name != name for name in stamped):
            raise IntegrityError(f"{path} names a file outside its folder")
        if self.dim < 1 or self.batch_size < 1:
            raise IntegrityError(f"{path}: dim and batch_size must be at least 1")


_REPAIR = "Export or copy the encoder again"
