"""What the tests of the generator `openai` share: a server on loopback that speaks OpenAI's chat completions
and fails in every way asked, and a client of it."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ranker.errors import GenerationError
from ranker.generation import GenerationSettings
from ranker.generation.openai import EndpointSettings, OpenAIFallback
from ranker.types import Context

CONTEXT = Context.of(["I lost my keys.", "Oh no, where?", "Somewhere in the park, I think."])
TEXT = "That is so annoying. I hope you find them soon!"
KEY = "sk-proj-4f9a8b7c6d5e"
RETRY = {"backoff_seconds": 0.01}

Answer = Callable[[socket.socket, threading.Event], None]
"""Writes an answer to a request that was read; the event is set when the test is over."""


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.body["messages"]]


@dataclass
class Endpoint:
    """Gives its answers in turn, the last one again and again."""

    port: int
    answers: list[Answer]
    requests: list[Request] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1"


@contextmanager
def serving(
    *answers: Answer, wrap: Callable[[socket.socket], socket.socket] | None = None
) -> Iterator[Endpoint]:
    """`wrap` turns an accepted connection into an encrypted one."""
    over = threading.Event()
    lock = threading.Lock()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection: socket.socket = self.request
            try:
                if wrap is not None:
                    connection = wrap(connection)
                request = _read_request(connection)
                with lock:
                    place = min(len(endpoint.requests), len(endpoint.answers) - 1)
                    endpoint.requests.append(request)
                endpoint.answers[place](connection, over)
            except (OSError, EOFError):
                pass  # the client went away, as it may
            finally:
                connection.close()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        endpoint = Endpoint(server.server_address[1], list(answers))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield endpoint
        finally:
            over.set()
            server.shutdown()
            thread.join(5)


def _read_request(connection: socket.socket) -> Request:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    while len(body) < int(headers["content-length"]):
        body += _some(connection)
    return Request(line, headers, json.loads(body))


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise EOFError
    return data


def completion(content: object, finish_reason: str = "stop", **message: object) -> dict[str, Any]:
    """The whole answer, as OpenAI documents it."""
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1735689600,
        "model": "toy",
        "choices": [{"index": 0, "message": said, "finish_reason": finish_reason, "logprobs": None}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
    }


def chunk(finish_reason: str | None = None, **delta: object) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1735689600, "model": "toy"}
    return {**head, "choices": [choice]}


def event(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def events(*contents: str) -> bytes:
    """A whole stream: the role first, the finish reason and [DONE] last."""
    parts = [chunk(role="assistant", content=""), *(chunk(content=content) for content in contents)]
    return b"".join(map(event, [*parts, chunk("stop"), "[DONE]"]))


def head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} Whatever", *lines, "", ""]).encode("latin-1")


def raw(data: bytes) -> Answer:
    """These bytes, then the end."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(data)

    return answer


def whole(
    value: object, status: int = 200, headers: Sequence[str] = (), kind: str = "application/json"
) -> Answer:
    """JSON, or bytes as they are, with a length, on a connection that the server would keep open."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    start = head(status, f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers)

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(start + body)
        over.wait(5)

    return answer


def text(content: str) -> Answer:
    return whole(completion(content))


def chunked(body: bytes, portion: int = 1 << 14, *, is_complete: bool = True) -> Answer:
    """A stream in portions of so many bytes; incomplete, the connection ends without the last chunk."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(STREAM_HEAD)
        for start in range(0, len(body), portion):
            part = body[start : start + portion]
            connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        if is_complete:
            connection.sendall(b"0\r\n\r\n")
            over.wait(5)

    return answer


STREAM_HEAD = head(200, "Content-Type: text/event-stream; charset=utf-8", "Transfer-Encoding: chunked")


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(20)


def dripping(start: bytes, drop: bytes) -> Answer:
    """`start`, then `drop` again and again, so that no single read ever waits for long."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(start)
        while not over.wait(0.03):
            connection.sendall(drop)

    return answer


def fallback(endpoint: Endpoint, max_seconds: float = 5.0, **settings: object) -> OpenAIFallback:
    values: dict[str, object] = {"base_url": endpoint.url, "model": "toy", "retries": 0, **settings}
    return OpenAIFallback(
        EndpointSettings(**values),  # type: ignore[arg-type] # the values of each test
        GenerationSettings(max_seconds=max_seconds),
    )


@contextmanager
def fails(within: float = 2.0) -> Iterator[list[str]]:
    """Expects a GenerationError in time; gives its message as the only element of the list, afterwards."""
    messages: list[str] = []
    start = time.monotonic()
    with pytest.raises(GenerationError) as caught:
        yield messages
    assert time.monotonic() - start < within
    messages.append(str(caught.value))
    assert "\n" not in messages[0]
    assert KEY not in "".join(traceback.format_exception(caught.value))
