"""Rows that hold one reply each, with or without the context that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from ranker.corpora.dialogue import LISTENER, Dialogue, Turn
from ranker.types import Label, LabelKind, clean_text


class BadRowError(ValueError):
    """A row that cannot be used; its message is the reason to be counted."""


def reply_dialogue(
    corpus: str, id: str, response: object, context: object = None, labels: tuple[Label, ...] = ()
) -> Dialogue:
    """The turns of the context (a text, a list of texts or nothing), then the response as the listener's.

    The labels are those of the dialogue. Raises BadRowError where one is not text or the response is empty.
    """
    if not isinstance(response, str):
        raise BadRowError("without a response")
    reply = clean_text(response)
    if not reply:
        raise BadRowError("with an empty response")
    said = context_turns(context)
    # Speakers alternate back from the listener, who replies.
    turns = [Turn(text, (LISTENER + len(said) - place) % 2) for place, text in enumerate(said)]
    turns.append(Turn(reply, LISTENER))
    return Dialogue(corpus, id, tuple(turns), labels, first_response=len(said))


def context_turns(context: object) -> list[str]:
    """The clean, non-empty turns of a context given as a text, a list of texts, or None."""
    if context is None:
        return []
    given = [context] if isinstance(context, str) else context
    if not isinstance(given, list) or not all(isinstance(turn, str) for turn in given):
        raise BadRowError("whose context is neither text nor a list of texts")
    return [text for turn in given if (text := clean_text(turn))]


def labels_of(value: object) -> tuple[Label, ...]:
    """Labels given as `{"emotion": "joyful", "topic": ["music", "work"]}`; None gives none.

    Raises BadRowError for anything else.
    """
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise BadRowError("whose labels are not an object of kind and name")
    return tuple(label for kind, names in value.items() for label in _labels_of_kind(kind, names))


def _labels_of_kind(kind: object, names: object) -> list[Label]:
    found = [names] if isinstance(names, str) else names
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise BadRowError("whose labels are not an object of kind and name")
    for known in get_args(LabelKind):
        if kind == known:
            return [Label(known, cleaned) for name in found if (cleaned := clean_text(name))]
    raise BadRowError("with a label that is no emotion, intent or topic")
