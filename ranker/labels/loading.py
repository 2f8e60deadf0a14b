"""Finding a label model: a folder, a fastText file, the home's own, or the one that came with the package."""

from __future__ import annotations

from pathlib import Path

from ranker.errors import NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.labels.binary import read_fasttext_file
from ranker.labels.compact import read_fasttext
from ranker.labels.fasttext import FastTextLabeler
from ranker.storage import MANIFEST
from ranker.types import LabelKind

HEAD = "head"
"""The name of the folder that holds the emotion head, beside those of the kinds."""

RESPONSE_INTENT = "response-intent"
"""The name of the folder that holds the head for the intent of the reply to come."""


def model_folder(name: str, home: Home | None = None) -> Path:
    """The folder of the model called `name` (a kind, `head` or `response-intent`): the home's where it has
    one, else the package's. Raises NotFoundError where neither has."""
    places = ([home.models / "labels"] if home is not None else []) + [EMBEDDED / "labels"]
    for place in places:
        if (place / name / MANIFEST).is_file():
            return place / name
    raise NotFoundError(f"there is no {name} model", fix=f"To make one: ranker train-labels {name}")


def load_labeler(
    kind: LabelKind, path: str | Path | None = None, *, home: Home | None = None
) -> FastTextLabeler:
    """The fastText labeler of a kind: the folder or fastText file `path`, else the home's or the package's.

    Raises NotFoundError where there is none, IntegrityError where it is damaged or of another kind.
    """
    if path is None:
        return read_fasttext(model_folder(kind, home))
    place = Path(path).expanduser()
    if not place.is_dir():
        return FastTextLabeler(kind, read_fasttext_file(place))
    labeler = read_fasttext(place)
    if labeler.kind != kind:
        raise NotFoundError(f"{place} predicts {labeler.kind}, not {kind}")
    return labeler
