"""The generator `openai` in time, whatever the endpoint does: deadlines, retries and the budget."""

from __future__ import annotations

import socket
import threading
import time
from email.utils import formatdate

import endpoints
import pytest
from endpoints import CONTEXT, RETRY, TEXT, Answer, chunk, event, fails, fallback, serving

from ranker.errors import GenerationError
from ranker.generation import GenerationSettings
from ranker.generation.openai import EndpointSettings, OpenAIFallback

# Time


@pytest.mark.parametrize(
    "answer",
    [
        endpoints.silent,
        endpoints.dripping(b"", b"H"),
        endpoints.dripping(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        endpoints.dripping(endpoints.head(200, "Content-Type: application/json"), b" "),
        endpoints.dripping(endpoints.head(200, "Content-Type: text/event-stream"), b": keep-alive\n\n"),
        endpoints.dripping(endpoints.STREAM_HEAD, b"1\r\n:\r\n"),
        endpoints.dripping(endpoints.head(500, "Content-Type: application/json"), b" "),
    ],
    ids=["silent", "status", "headers", "body", "comments", "chunks", "error-body"],
)
@pytest.mark.parametrize("method", ["reply", "stream"])
def test_nothing_outlasts_the_limit(answer: Answer, method: str) -> None:
    with serving(answer) as endpoint, fails(within=1.5) as messages:
        generator = fallback(endpoint, max_seconds=0.3, timeout_seconds=60.0, retries=5)
        _ = generator.reply(CONTEXT) if method == "reply" else list(generator.stream(CONTEXT))
    assert endpoint.address in messages[0]


def test_a_stream_that_never_ends() -> None:
    part = event(chunk(content="and so on "))
    drop = b"%x\r\n%b\r\n" % (len(part), part)
    with serving(endpoints.dripping(endpoints.STREAM_HEAD, drop)) as endpoint:
        with fails(within=1.5) as messages:
            list(fallback(endpoint, max_seconds=0.4, timeout_seconds=0.1).stream(CONTEXT))
        assert "did not answer in time" in messages[0]
        text = "".join(fallback(endpoint, max_seconds=30.0).stream(CONTEXT))
    assert text.endswith("and so on…")  # it was cut at the length of 40 long tokens
    assert 250 < len(text) < 330


def test_a_slow_attempt_is_given_up_for_another() -> None:
    with serving(endpoints.silent, endpoints.text(TEXT)) as endpoint:
        reply = fallback(endpoint, timeout_seconds=0.2, retries=1, **RETRY).reply(CONTEXT)
    assert (reply.text, reply.details["attempts"]) == (TEXT, "2")


def test_a_lookup_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20))
    with fails(within=1.5) as messages:
        generation = GenerationSettings(max_seconds=0.2)
        OpenAIFallback(EndpointSettings("http://llm.example/v1", "toy"), generation).reply(CONTEXT)
    over.set()
    assert messages == ["the endpoint at llm.example did not answer in time"]


# Retries


def too_many(retry_after: str) -> Answer:
    return endpoints.whole({"error": {"message": "slow down"}}, 429, [f"Retry-After: {retry_after}"])


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_answer_that_may_change_is_asked_for_again(status: int) -> None:
    with serving(endpoints.whole({}, status), endpoints.text(TEXT)) as endpoint:
        reply = fallback(endpoint, retries=1, **RETRY).reply(CONTEXT)
    assert (reply.text, reply.details["attempts"]) == (TEXT, "2")


def test_retry_after_is_kept_to() -> None:
    with serving(too_many("0.3"), endpoints.text(TEXT)) as endpoint:
        start = time.monotonic()
        assert fallback(endpoint, retries=1, **RETRY).reply(CONTEXT).text == TEXT
        assert time.monotonic() - start > 0.3


@pytest.mark.parametrize("retry_after", ["30", formatdate(time.time() + 300, usegmt=True)])
def test_a_longer_wait_than_there_is_time_for_fails_at_once(retry_after: str) -> None:
    with serving(too_many(retry_after), endpoints.text(TEXT)) as endpoint, fails() as messages:
        fallback(endpoint, retries=3, **RETRY).reply(CONTEXT)
    assert messages == [f"the endpoint at {endpoint.address} answers 429 Too Many Requests (slow down)"]
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "retry_after", ["soon", "-5", "nan", "1e9", "Mon, 99 Xyz", formatdate(0, usegmt=True)]
)
def test_a_senseless_retry_after_is_passed_over(retry_after: str) -> None:
    with serving(too_many(retry_after), endpoints.text(TEXT)) as endpoint:
        assert fallback(endpoint, retries=1, **RETRY).reply(CONTEXT).text == TEXT


def test_retries_come_to_an_end() -> None:
    with serving(endpoints.whole({"detail": "broken.\x1b[31m\n"}, 500)) as endpoint, fails() as messages:
        fallback(endpoint, retries=2, **RETRY).reply(CONTEXT)
    assert len(endpoint.requests) == 3
    assert messages[0].endswith("answers 500 Internal Server Error (broken. [31m), tried 3 times")


def test_a_server_that_hangs_up_is_tried_again() -> None:
    with serving(endpoints.raw(b""), endpoints.text(TEXT)) as endpoint:
        assert fallback(endpoint, retries=1, **RETRY).reply(CONTEXT).text == TEXT


def test_an_endpoint_that_is_down() -> None:
    with serving(endpoints.silent) as endpoint:
        pass
    with fails() as messages:
        fallback(endpoint, retries=2, **RETRY).reply(CONTEXT)
    reason = "cannot be reached (Connection refused), tried 3 times"
    assert messages == [f"the endpoint at {endpoint.address} {reason}"]


# The budget


def test_the_budget_of_a_minute() -> None:
    with serving(endpoints.text(TEXT)) as endpoint:
        generator = fallback(endpoint, requests_per_minute=2)
        generator.reply(CONTEXT)
        "".join(generator.stream(CONTEXT))
        with fails(within=0.5) as messages:
            generator.reply(CONTEXT)
    assert "the budget of 2 requests a minute is used up. Try again in" in messages[0]
    assert len(endpoint.requests) == 2


def test_retries_count_towards_the_budget() -> None:
    with serving(endpoints.whole({}, 503)) as endpoint, fails() as messages:
        fallback(endpoint, requests_per_minute=2, retries=9, **RETRY).reply(CONTEXT)
    assert len(endpoint.requests) == 2
    assert "answers 503" in messages[0]


def test_threads_share_the_budget() -> None:
    outcomes: list[str] = []

    def ask(generator: OpenAIFallback) -> None:
        try:
            outcomes.append(generator.reply(CONTEXT).text)
        except GenerationError:
            outcomes.append("refused")

    with serving(endpoints.text(TEXT)) as endpoint:
        generator = fallback(endpoint, requests_per_minute=5)
        threads = [threading.Thread(target=ask, args=(generator,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert sorted(outcomes) == [TEXT] * 5 + ["refused"] * 7
