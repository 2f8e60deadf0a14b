"""Texts as words, and words as texts, for generators with a word-level vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ranker.tokenizing import PlainTokenizer
from ranker.types import Context, clean_text

PAD, UNKNOWN, START, SEPARATOR = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
"""A reply goes from START to SEPARATOR; the turns of a context are joined by SEPARATOR."""

_CHARACTERS_PER_TOKEN = 32
"""Of a text, only this many characters for each token are tokenised, so that a huge one costs no more than a
long one."""


class Vocabulary:
    """Texts to ids by a `tokenizers` tokenizer, and ids to words.

    Special tokens written out in a text are ordinary characters: a user who types "[SEP]" adds no turn.
    """

    def __init__(self, tokenizer_json: bytes, *, source: str) -> None:
        """Raises IntegrityError where `tokenizer_json`, from `source`, is no tokenizer or lacks a token."""
        self._tokenizer = PlainTokenizer(tokenizer_json, source=source)
        self.size = self._tokenizer.size
        self.pad, self.unknown, self.start, self.end = (
            self._tokenizer.id_of(token) for token in (PAD, UNKNOWN, START, SEPARATOR)
        )

    def context_ids(self, context: Context, *, turns: int, tokens: int) -> list[int]:
        """Of the last `turns` turns, joined by SEPARATOR: the newest `tokens`, at least one."""
        limit = tokens * _CHARACTERS_PER_TOKEN
        found: list[int] = []
        for turn in context.turns[-turns:]:
            found += [*self._tokenizer.ids(clean_text(turn[-limit:])), self.end]
        return found[:-1][-tokens:] or [self.unknown]

    def reply_ids(self, text: str) -> list[int]:
        """Of a reply, without START and SEPARATOR."""
        return self._tokenizer.ids(clean_text(text))

    def words(self, ids: Iterable[int]) -> list[str]:
        return [self._tokenizer.token_of(number) for number in ids]


class Speller:
    """Lower-cased words and punctuation marks as people write them, word by word.

    What a word is joined to depends on the words before it alone, so that a reply can be shown as it grows.
    """

    def __init__(self) -> None:
        self._before = ""
        self._is_start = True
        self._is_quoted = False

    def piece(self, word: str) -> str:
        """The text that the next word adds."""
        text = word
        if self._is_start and any(char.isalnum() for char in word):
            text, self._is_start = word[:1].upper() + word[1:], False
        elif word == "i":
            text = "I"
        space = "" if self._is_joined(word) else " "
        if word in _SENTENCE_ENDS:
            self._is_start = True
        if word == '"':
            self._is_quoted = not self._is_quoted
            self._before = "(" if self._is_quoted else ")"
        else:
            self._before = word
        return space + text

    def _is_joined(self, word: str) -> bool:
        before = self._before
        if not before or before in _OPENING or before in _INSIDE:
            return True
        if word == '"':
            return self._is_quoted
        if word in _CLOSING or word in _INSIDE or word == "'":
            return True
        if before == "'":
            return word in _CONTRACTED
        return before in ".,:" and word.isdigit()


def spelled(words: Sequence[str]) -> str:
    """All words as one text."""
    speller = Speller()
    return "".join(speller.piece(word) for word in words)


_SENTENCE_ENDS = frozenset(".!?")
_CLOSING = frozenset(".,!?;:)]}%…")
_OPENING = frozenset("([{$£€#@")
_INSIDE = frozenset("-/_’")
_CONTRACTED = frozenset({"s", "t", "m", "d", "re", "ve", "ll", "all", "am"})
