"""How texts become token ids: the one layout that training, export and answering share.

A context is `[CLS] turn [SEP] turn [SEP]`, oldest turn first, a candidate `[CLS] text [SEP]`, whatever the
tokenizer calls these tokens. Prepended labels, where the encoder has them, follow [CLS] and do not count
towards the limit. Where the limit cuts, a context keeps its newest tokens, down to the end of an over-long
last turn: what a reply answers (the question, the outcome) mostly comes last. A candidate keeps its start, by
which it is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ranker.errors import ConfigError, InputError
from ranker.labels import Prepender
from ranker.tokenizing import PlainTokenizer
from ranker.types import Context, clean_text

LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the ids of any text change."""

MAX_TOKENS = 100
CONTEXT_WINDOW = 4

_CHARACTERS_PER_TOKEN = 32
"""Of a text, only this many characters for each token are tokenised, so that a huge one costs what a long one
does. Words average under six characters to a token: the limit is met by junk only."""


def context_ids(
    turn_ids: Sequence[Sequence[int]], cls: int, sep: int, max_tokens: int, labels: Sequence[int] = ()
) -> list[int]:
    """Ids of a context from the ids of its turns (oldest first, no special tokens): at most `max_tokens`, and
    those of its labels."""
    body: list[int] = []
    for turn in reversed(turn_ids):
        joint = [sep] if body else []
        room = max_tokens - 2 - len(body) - len(joint)
        if room <= 0:
            break
        if turn:
            body = [*turn[-room:], *joint, *body]
    return [cls, *labels, *body, sep]


def candidate_ids(
    text_ids: Sequence[int], cls: int, sep: int, max_tokens: int, labels: Sequence[int] = ()
) -> list[int]:
    """Ids of a candidate from those of its text (no special tokens): at most `max_tokens`, and those of its
    labels."""
    return [cls, *labels, *text_ids[: max_tokens - 2], sep]


@dataclass(frozen=True, slots=True)
class LayoutSettings:
    """What, beside the tokenizer, decides the ids of a text."""

    cls_token: str
    sep_token: str
    pad_token: str
    max_tokens: int = MAX_TOKENS
    context_window: int = CONTEXT_WINDOW

    def __post_init__(self) -> None:
        if self.max_tokens < 3 or self.context_window < 1:
            raise ConfigError("an encoder needs max_tokens of at least 3 and a context_window of at least 1")


class TokenLayout:
    """Texts to ids with a `tokenizers` tokenizer of its own. Thread-safe.

    Special tokens written out in a text are ordinary characters: a user who types "[SEP]" adds no turn.
    """

    def __init__(
        self,
        tokenizer_json: bytes,
        settings: LayoutSettings,
        *,
        source: str,
        prepender: Prepender | None = None,
    ) -> None:
        """Raises IntegrityError where `tokenizer_json`, from `source`, is no tokenizer or lacks a token."""
        self._tokenizer = PlainTokenizer(tokenizer_json, source=source)
        self.tokenizer_json = tokenizer_json
        self.settings = settings
        self._max_characters = settings.max_tokens * _CHARACTERS_PER_TOKEN
        self._cls, self._sep, self.pad_id = (
            self._tokenizer.id_of(token)
            for token in (settings.cls_token, settings.sep_token, settings.pad_token)
        )
        self.prepender = prepender
        self._label_ids = {
            token: self._tokenizer.id_of(token) for token in (prepender.tokens if prepender else ())
        }

    def context(self, context: Context) -> list[int]:
        """Ids of the context's last turns."""
        shown = context.turns[-self.settings.context_window :]
        turns = [turn_text(turn, self._max_characters) for turn in shown]
        return context_ids(
            [self._tokenizer.ids(turn) for turn in turns],
            self._cls,
            self._sep,
            self.settings.max_tokens,
            self._labels(" ".join(turns)),
        )

    def candidate(self, text: str) -> list[int]:
        """Ids of a candidate's text. Raises InputError where it is empty or no text."""
        cleaned = candidate_text(text, self._max_characters)
        return candidate_ids(
            self._tokenizer.ids(cleaned),
            self._cls,
            self._sep,
            self.settings.max_tokens,
            self._labels(cleaned),
        )

    def _labels(self, text: str) -> list[int]:
        if self.prepender is None:
            return []
        return [self._label_ids[token] for token in self.prepender.tokens_of(text)]


def turn_text(text: str, limit: int) -> str:
    """A turn cleaned, and cut to the last `limit` characters."""
    if len(text) > limit and (end := clean_text(text.rstrip()[-limit:])):
        return end  # cut first: cleaning is the slow part
    return clean_text(text)[-limit:]


def candidate_text(text: str, limit: int) -> str:
    """A candidate cleaned, and cut to the first `limit` characters. Raises InputError where none is left."""
    if not isinstance(text, str):
        raise InputError(f"a candidate must be text, not {type(text).__name__}")
    if len(text) > limit and (start := clean_text(text.lstrip()[:limit])):
        return start
    if cleaned := clean_text(text)[:limit]:
        return cleaned
    raise InputError(f"a candidate is empty: {text[:20]!r}", fix="Leave out empty texts")
