"""How a text becomes the tokens that a label model counts."""

from __future__ import annotations

import re
from typing import Literal

Tokenisation = Literal["words", "spaces"]
"""`words`: lower case, punctuation apart, contractions whole. `spaces`: fastText's own, between blanks."""

END_OF_LINE = "</s>"
"""fastText's token for the end of a line, which ends every text."""

_LABEL_PREFIX = "__label__"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[^\w\s\x00-\x1f\x7f]")
_BLANKS = re.compile(r"[ \n\r\t\v\f\0]+")


def tokens_of(text: str, tokenisation: Tokenisation) -> list[str]:
    """The tokens of a text, without the end of line. A line feed inside it is a blank."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    if tokenisation == "words":
        return _WORD.findall(text.lower().replace("\u2019", "'"))
    found = [token for token in _BLANKS.split(text) if token and not token.startswith(_LABEL_PREFIX)]
    return found[: found.index(END_OF_LINE)] if END_OF_LINE in found else found
