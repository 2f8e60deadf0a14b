"""Encoders by name, folder or hub id."""

from __future__ import annotations

import re
from pathlib import Path

from ranker.encoders.card import CARD_FILE
from ranker.encoders.hashing import HashingEncoder
from ranker.encoders.onnx import OnnxEncoder
from ranker.errors import MissingExtraError, NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.types import Encoder

EMBEDDED_ENCODER = EMBEDDED / "encoder"
_EMBEDDED_NAMES = ("default", "mini")
_HASHING = "hashing"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load_encoder(
    name_or_path: str | Path | None = None, *, home: Home | None = None, threads: int | None = None
) -> Encoder:
    """The encoder of a name, folder or hub id.

    - None, "default" or "mini": the one that comes with the package; "hashing": HashingEncoder.
    - A folder, or the name of one among the home's models: the exported encoder or the sentence-transformers
      model (extra `train`) in it.
    - Any other "owner/name": that model of the hub (extra `train`).

    `threads` is how many texts an exported encoder works on at once (default: the cores, at most 4).

    Raises NotFoundError, IntegrityError for a damaged folder, MissingExtraError, DownloadError.
    """
    name = "default" if name_or_path is None else str(name_or_path)
    if name in _EMBEDDED_NAMES:
        return OnnxEncoder(EMBEDDED_ENCODER, threads=threads)
    if name == _HASHING:
        return HashingEncoder()
    models = (home or Home.find()).models
    for folder in (Path(name).expanduser(), models / name):
        if folder.is_dir():
            return _from_folder(folder, threads)
    if _HUB_ID.fullmatch(name) and not name.startswith((".", "~")):
        return _torch_encoder(name)
    known = [*_EMBEDDED_NAMES, _HASHING, *_model_names(models)]
    raise NotFoundError.of("encoder", name, known, fix="A folder or a hub id (owner/name) will do as well")


def _from_folder(folder: Path, threads: int | None) -> Encoder:
    if (folder / CARD_FILE).is_file():
        return OnnxEncoder(folder, threads=threads)
    if (folder / "modules.json").is_file() or (folder / "config.json").is_file():
        return _torch_encoder(str(folder))
    raise NotFoundError(f"{folder} holds neither an exported encoder nor a sentence-transformers model")


def _torch_encoder(name: str) -> Encoder:
    try:
        from ranker.encoders.torch import TorchEncoder
    except ImportError as error:
        raise MissingExtraError.of(f"the model {name!r}", "train") from error
    return TorchEncoder.load(name)


def _model_names(models: Path) -> list[str]:
    return [folder.name for folder in models.iterdir() if folder.is_dir()] if models.is_dir() else []
