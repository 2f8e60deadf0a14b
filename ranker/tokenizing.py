"""A tokenizer from bytes whose hash was checked, as every part that turns text into ids reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranker.errors import IntegrityError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class PlainTokenizer:
    """Texts to ids: nothing is cut, padded or added.

    Special tokens written out in a text are ordinary characters: a user who types "[SEP]" adds no turn.
    """

    def __init__(self, tokenizer_json: bytes, *, source: str) -> None:
        """Raises IntegrityError where `tokenizer_json`, from `source`, is no tokenizer."""
        from tokenizers import Tokenizer

        try:
            tokenizer: Tokenizer = Tokenizer.from_buffer(tokenizer_json)
        except Exception as error:  # the native parser raises bare Exceptions too
            raise IntegrityError(f"{source} is not a tokenizer ({error})") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._source = source

    @property
    def size(self) -> int:
        """Tokens that it knows."""
        return int(self._tokenizer.get_vocab_size())

    def ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def id_of(self, token: str) -> int:
        """Raises IntegrityError where there is no such token."""
        number: int | None = self._tokenizer.token_to_id(token)
        if number is None:
            raise IntegrityError(f"{self._source} has no token {token!r}")
        return number

    def token_of(self, number: int) -> str:
        return str(self._tokenizer.id_to_token(number))
