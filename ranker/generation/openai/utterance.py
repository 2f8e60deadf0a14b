"""What a model writes, made into one utterance: no thoughts, names, quotes around it, or turns of others.

The same rules serve a whole reply and a stream, so that both give the same text: a stream gives out only what
no later text can change.
"""

from __future__ import annotations

import re

from ranker.types import clean_text

_THINK, _THOUGHT = "<think>", "</think>"
_NAMES = "assistant|chatbot|bot|ai|listener|user|human|speaker|system"
_OWN_NAME = re.compile(rf"\*{{0,2}}(?:{_NAMES}|reply|response|answer)\*{{0,2}} ?:\*{{0,2}}\s*", re.IGNORECASE)
_NEXT_TURN = re.compile(rf"\n\s*\*{{0,2}}(?:{_NAMES})\*{{0,2}} ?:", re.IGNORECASE)
_NAME_LENGTH = 20
"""More characters than any match of a name and its colon has, beside the whitespace around."""
_QUOTES = {'"': '"', "“": "”", "«": "»"}
_SENTENCE_END = tuple('.!?…"”')


def utterance(raw: str, *, has_ended: bool = True) -> str:
    """The utterance in `raw`, clean (see clean_text). Where more may follow, the words that are certain.

    Thoughts in <think> are left out; a name in front and quotes around everything are taken off; where
    another turn begins ("User: ..."), the rest is dropped.
    """
    # Endpoints may cut between the two halves of a character beyond 16 bits.
    text = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").lstrip()
    if text.startswith(_THINK):
        text = text.partition(_THOUGHT)[2].lstrip()
    elif not has_ended and _THINK.startswith(text):
        return ""
    if not has_ended and _may_become_name(text):
        return ""
    if own_name := _OWN_NAME.match(text):
        text = text[own_name.end() :]
    if next_turn := _NEXT_TURN.search(text):
        text, has_ended = text[: next_turn.start()], True
    elif not has_ended:
        before, newline, line = text.rpartition("\n")
        if newline and _may_become_name(line):
            text = before + newline
    text = _unquoted(text, has_ended=has_ended)
    return clean_text(text if has_ended else _whole_words(text))


class Utterance:
    """An utterance in the making, fed as the model writes it."""

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._raw = ""
        self.text = ""
        """What was given out so far."""
        self.is_full = False
        """Nothing that is added changes it any more."""

    def add(self, raw: str) -> str:
        """The words that are certain now and were not before: perhaps none."""
        self._raw += raw
        return self._grow(utterance(self._raw, has_ended=False))

    def end(self, *, is_cut: bool) -> str:
        """The rest. Where the model was cut off within a sentence, an ellipsis replaces the last word, which
        may not be whole."""
        raw = self._raw
        if is_cut and not raw.rstrip().endswith(_SENTENCE_END):
            raw = _whole_words(raw)
        rest = self._grow(utterance(raw))
        if (is_cut or self.is_full) and self.text and not self.text.endswith(_SENTENCE_END):
            self.text += "…"
            rest += "…"
        return rest

    def _grow(self, text: str) -> str:
        if self.is_full:
            return ""
        if len(text) > self._max_characters:
            self.is_full = True
            whole_words = text[: self._max_characters + 1].rpartition(" ")[0]
            text = whole_words or text[: self._max_characters]
        new = text[len(self.text) :]
        self.text += new
        return new


def _may_become_name(line: str) -> bool:
    """Whether the beginning of a line is too short to tell if it is a name and a colon."""
    start = line.lstrip()
    return len(start) < _NAME_LENGTH and ":" not in start and "\n" not in start


def _unquoted(text: str, *, has_ended: bool) -> str:
    """Without the quotes around all of it; empty where that is not certain yet."""
    closing = _QUOTES.get(text[:1])
    if closing is None:
        return text
    end = text.find(closing, 1)
    if end >= 0 and text[end + 1 :].strip():
        return text  # a quotation within the utterance
    if not has_ended:
        return ""
    return text[1:end] if end >= 0 else text[1:]


def _whole_words(text: str) -> str:
    """Without the last word, which may go on."""
    return text[: len(text) - len(re.split(r"\s", text)[-1])] if text else text
