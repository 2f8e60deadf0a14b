"""Chat completions as they come over the wire: one JSON object, or a stream of server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ranker.generation.openai.failure import EndpointFailure
from ranker.types import clean_text

_DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_MAX_QUOTED = 160


@dataclass(frozen=True, slots=True)
class Piece:
    """Text as the model wrote it. `finish_reason` is empty until the last piece."""

    text: str
    finish_reason: str = ""


class Events:
    """Cuts a stream of server-sent events, fed in any portions, into the data of each event."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._data: list[bytes] = []

    def feed(self, portion: bytes) -> Iterator[str]:
        """The data of the events that this portion completes. Raises EndpointFailure for other than UTF-8."""
        self._pending += portion
        if b"\n" not in portion and b"\r" not in self._pending:
            return
        *lines, rest = _LINE_END.split(bytes(self._pending))
        self._pending = bytearray(rest)
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[str]:
        """What the last event holds where the stream ended without the empty line after it."""
        yield from self._line(bytes(self._pending.rstrip(b"\r")))
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        line = line.removeprefix(b"\xef\xbb\xbf")
        if not line and self._data:
            data, self._data = b"\n".join(self._data), []
            try:
                yield data.decode("utf-8")
            except UnicodeDecodeError:
                raise EndpointFailure("answers with text that is not UTF-8") from None
        field, _, value = line.partition(b":")
        if field == b"data":  # a line that starts with a colon is a comment, to keep the connection alive
            self._data.append(value.removeprefix(b" "))


def read_answer(chunks: Iterable[bytes], content_type: str) -> Iterator[Piece]:
    """The pieces of the first choice, in either form: some endpoints pay no heed to `stream`.

    Raises EndpointFailure where the answer is of another form, broken, refused, or a stream that ends before
    the model did.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        yield from _streamed(chunks)
    elif kind == "application/json":
        yield _piece(_object(b"".join(chunks)), "message")
    else:
        raise EndpointFailure(
            f"answers with {clean_text(kind)[:40] or 'no content type'}, not JSON",
            fix="Check that base_url is that of an OpenAI-compatible endpoint",
        )


def quoted_error(body: bytes, key: str) -> str:
    """What the endpoint says about an error, in one line, or nothing where it says nothing or shows a part of
    the key, as some do."""
    try:
        said = clean_text(_error_message(_object(body)))
    except EndpointFailure:
        return ""
    parts = {key[start : start + 6] for start in range(max(1, len(key) - 5))} if key else set()
    if any(part in said for part in parts):
        return ""
    return said if len(said) <= _MAX_QUOTED else said[:_MAX_QUOTED].rsplit(" ", 1)[0] + "…"


def _streamed(chunks: Iterable[bytes]) -> Iterator[Piece]:
    has_ended = False
    for data in _events(chunks):
        if data.strip() == _DONE:
            return
        value = _object(data)
        if value.get("choices") == []:
            continue  # a report of usage, or of the prompt's filter
        piece = _piece(value, "delta")
        has_ended = has_ended or bool(piece.finish_reason)
        yield piece
    if not has_ended:
        raise EndpointFailure("broke off in the middle of its answer", may_pass=True)


def _events(chunks: Iterable[bytes]) -> Iterator[str]:
    events = Events()
    for chunk in chunks:
        yield from events.feed(chunk)
    yield from events.end()


def _object(data: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # not UTF-8 is a ValueError, too
        raise EndpointFailure("answers with something that is not JSON") from None
    if not isinstance(value, dict):
        raise EndpointFailure("answers with JSON of another shape than a chat completion")
    return value


def _piece(value: dict[str, Any], field: str) -> Piece:
    """The first choice's `message` or `delta`."""
    if value.get("error"):
        # The message is not quoted: this far in, the key is not at hand to be looked for in it.
        raise EndpointFailure("reports an error instead of an answer", may_pass=True)
    choices = value.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise EndpointFailure("answers with JSON of another shape than a chat completion")
    choice = next((choice for choice in choices if choice.get("index", 0) == 0), None)
    if choice is None:
        if field == "delta":
            return Piece("")  # of another choice
        raise EndpointFailure("answers without a choice")
    message = choice.get(field) or {}
    if not isinstance(message, dict):
        raise EndpointFailure("answers with JSON of another shape than a chat completion")
    finish_reason = choice.get("finish_reason") or ""
    if message.get("refusal") or finish_reason == "content_filter":
        raise EndpointFailure("refuses to answer this context")
    return Piece(_content(message.get("content")), str(finish_reason))


def _content(content: object) -> str:
    """Text, nothing, or a list of parts, of which those of type `text` count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    raise EndpointFailure("answers with JSON of another shape than a chat completion")


def _error_message(value: dict[str, Any]) -> str:
    error = value.get("error", value.get("detail", value.get("message", "")))
    if isinstance(error, dict):
        error = error.get("message", "")
    return error if isinstance(error, str) else ""
