"""The names of the labels: emotions, intents and topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from ranker.errors import NotFoundError
from ranker.types import LabelKind

KINDS: tuple[LabelKind, ...] = get_args(LabelKind)

EMOTIONS = (
    "afraid",
    "angry",
    "annoyed",
    "anticipating",
    "anxious",
    "apprehensive",
    "ashamed",
    "caring",
    "confident",
    "content",
    "devastated",
    "disappointed",
    "disgusted",
    "embarrassed",
    "excited",
    "faithful",
    "furious",
    "grateful",
    "guilty",
    "hopeful",
    "impressed",
    "jealous",
    "joyful",
    "lonely",
    "nostalgic",
    "prepared",
    "proud",
    "sad",
    "sentimental",
    "surprised",
    "terrified",
    "trusting",
)
"""The 32 emotions of EmpatheticDialogues."""

RESPONSE_INTENTS = (
    "acknowledging",
    "agreeing",
    "consoling",
    "encouraging",
    "questioning",
    "suggesting",
    "sympathizing",
    "wishing",
)
"""What an empathetic listener does, beside showing an emotion."""

INTENTS = (*EMOTIONS, *RESPONSE_INTENTS, "neutral")
"""The 41 ways in which an utterance is meant: with an emotion, as a response intent, or neither."""

TOPIC_OF_NEWSGROUP = {
    "alt.atheism": "atheism",
    "comp.graphics": "graphics",
    "comp.os.ms-windows.misc": "windows",
    "comp.sys.ibm.pc.hardware": "pc",
    "comp.sys.mac.hardware": "mac",
    "comp.windows.x": "unix",
    "misc.forsale": "shopping",
    "rec.autos": "cars",
    "rec.motorcycles": "motorcycles",
    "rec.sport.baseball": "baseball",
    "rec.sport.hockey": "hockey",
    "sci.crypt": "cryptography",
    "sci.electronics": "electronics",
    "sci.med": "medicine",
    "sci.space": "space",
    "soc.religion.christian": "christianity",
    "talk.politics.guns": "guns",
    "talk.politics.mideast": "mideast",
    "talk.politics.misc": "politics",
    "talk.religion.misc": "religion",
}
"""Readable one-word names of the groups of 20 Newsgroups."""

TOPICS = tuple(TOPIC_OF_NEWSGROUP.values())

_NAMES: dict[LabelKind, tuple[str, ...]] = {"emotion": EMOTIONS, "intent": INTENTS, "topic": TOPICS}


def names_of(kind: LabelKind) -> tuple[str, ...]:
    """The names of a kind, in the order in which models number them."""
    return _NAMES[kind]


def as_kind(text: str) -> LabelKind:
    """`text` as a kind of label. Raises NotFoundError, naming the nearest, where it is none."""
    for kind in KINDS:
        if text == kind:
            return kind
    raise NotFoundError.of("kind of label", text, KINDS)


def check_names(kind: LabelKind, names: Iterable[str]) -> None:
    """Raise NotFoundError, naming the nearest, unless every name is one of the kind."""
    known = names_of(kind)
    for name in names:
        if name not in known:
            raise NotFoundError.of(kind, name, known)
