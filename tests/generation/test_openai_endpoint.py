"""The generator `openai` against a real server on loopback: what is sent, and what is made of the answers."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import endpoints
import pytest
from endpoints import CONTEXT, KEY, RETRY, TEXT, Answer, chunk, completion, event, fails, fallback, serving

from ranker.errors import ConfigError
from ranker.generation import GenerationSettings, load_generator
from ranker.generation.openai import EndpointSettings, OpenAIFallback
from ranker.home import Home
from ranker.types import Context


def test_a_reply() -> None:
    with serving(endpoints.text(f'Assistant: "{TEXT}"\n\n')) as endpoint:
        reply = fallback(endpoint).reply(CONTEXT, ["Check your\ncar.", "Poor you!", "Keys!", "Not shown."])
    assert (reply.text, reply.source, reply.note) == (TEXT, "generated", "")
    assert reply.details == {
        "endpoint": endpoint.address,
        "model": "toy",
        "finish_reason": "stop",
        "attempts": "1",
    }
    [request] = endpoint.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["host"] == endpoint.address
    assert "authorization" not in request.headers
    assert request.body | {"messages": None} == {
        "model": "toy",
        "messages": None,
        "max_tokens": 40,
        "temperature": 0.8,
        "stream": False,
    }
    system, *turns = request.body["messages"]
    assert request.roles == ["system", "user", "assistant", "user"]
    assert [turn["content"] for turn in turns] == list(CONTEXT.turns)
    assert system["content"].endswith("- Check your car.\n- Poor you!\n- Keys!")


def test_what_the_operator_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_KEY", f" {KEY}\n")
    with serving(endpoints.text(TEXT)) as endpoint:
        settings = EndpointSettings(
            endpoint.url + "/", "toy", "TOY_KEY", examples=0, token_limit_field="max_completion_tokens"
        )
        generation = GenerationSettings(max_tokens=25, temperature=1.0, persona="You are a pirate.")
        OpenAIFallback(settings, generation).reply(CONTEXT, ["Not shown."])
    [request] = endpoint.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.body["max_completion_tokens"], request.body["temperature"]) == (25, 1.0)
    assert "max_tokens" not in request.body
    instructions = request.body["messages"][0]["content"]
    assert instructions.startswith("You are a pirate. Reply to")
    assert "Not shown" not in instructions


def test_a_huge_context_is_cut_to_its_newest_part() -> None:
    with serving(endpoints.text(TEXT)) as endpoint:
        generator = fallback(endpoint, max_context_characters=100)
        generator.reply(Context.of(["old " * 10, "answer " * 5, "new " * 20]))
        generator.reply(Context.of(["old " * 20, "answer", "new " * 10]))
        generator.reply(Context.of("x" * 1_000_000 + " the end"))
        generator.reply(Context.of(["Hello, I am here.", "Good."]))
    assert [request.roles[1:] for request in endpoint.requests] == [
        ["user"],
        ["user"],
        ["user"],
        ["assistant", "user"],
    ]
    assert len(endpoint.requests[2].body["messages"][1]["content"]) == 100
    assert endpoint.requests[2].body["messages"][1]["content"].endswith("x the end")


def test_the_generator_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    with pytest.raises(ConfigError, match=r"\[openai\] has no base_url.*RANKER_OPENAI_BASE_URL"):
        load_generator("openai", home)
    with serving(endpoints.text(TEXT)) as endpoint:
        home.config_file.write_text(f'[openai]\nbase_url = "{endpoint.url}"\nmodel = "other"\n')
        monkeypatch.setenv("RANKER_OPENAI_MODEL", "toy")
        generator = load_generator("openai", home, GenerationSettings(max_tokens=7))
        assert generator.name == "openai"
        assert generator.reply(CONTEXT).text == TEXT
    assert (endpoint.requests[0].body["model"], endpoint.requests[0].body["max_tokens"]) == ("toy", 7)


# Streams


@pytest.mark.parametrize("portion", [1, 2, 3, 7, 1 << 14])
def test_a_stream_cut_anywhere(portion: int) -> None:
    """Inside lines, UTF-8 characters and line ends alike."""
    reply = "Schön, that’s good 😀 to hear! 你好"
    body = b": keep-alive\r\n\r\n" + events_with_oddities(reply)
    with serving(endpoints.chunked(body, portion)) as endpoint:
        pieces = list(fallback(endpoint).stream(CONTEXT))
    assert "".join(pieces) == reply
    assert len(pieces) > 2
    assert endpoint.requests[0].body["stream"] is True


def events_with_oddities(reply: str) -> bytes:
    letters = b"".join(event(chunk(content=letter)) for letter in reply)
    usage = {**chunk(), "choices": [], "usage": {"total_tokens": 3}}
    other = chunk(content="another choice")
    other["choices"][0]["index"] = 1
    parts = [
        event(chunk(role="assistant", content="")).replace(b"\n", b"\r\n"),
        b"event: message\nid: 7\nretry: 10\n\n: comment\n",
        event(other),
        letters,
        event(chunk(content=None)),
        event(chunk("stop")).replace(b"\n", b"\r"),
        event(usage),
        b"data:[DONE]\n",  # with neither the space nor the empty line
    ]
    return b"\xef\xbb\xbf" + b"".join(parts)


def test_pieces_come_while_the_model_still_writes() -> None:
    shown = threading.Event()

    def answer(connection: socket.socket, over: threading.Event) -> None:
        start = event(chunk(content="That is so annoying. I hope "))
        connection.sendall(endpoints.STREAM_HEAD + b"%x\r\n%b\r\n" % (len(start), start))
        assert shown.wait(5)
        rest = event(chunk(content="you find them!")) + event(chunk("stop"))
        connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))

    with serving(answer) as endpoint:
        pieces = fallback(endpoint).stream(CONTEXT)
        first = next(pieces)
        shown.set()
        assert (first, "".join(pieces)) == ("That is so annoying. I hope", " you find them!")


def test_a_stream_that_is_left_alone_hangs_up() -> None:
    hung_up = threading.Event()

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(endpoints.STREAM_HEAD)
        data = event(chunk(content="That is so annoying. I hope "))
        try:
            while not over.wait(0.01):
                connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        except OSError:
            hung_up.set()

    with serving(answer) as endpoint:
        pieces = fallback(endpoint).stream(CONTEXT)
        next(pieces)
        del pieces
        assert hung_up.wait(5)


@pytest.mark.parametrize(
    "answer",
    [
        endpoints.raw(
            endpoints.head(200, "Content-Type: text/event-stream") + endpoints.events("Good ", "luck!")
        ),
        endpoints.whole(endpoints.events("Good ", "luck!"), kind="text/event-stream"),
        endpoints.whole(completion("Good luck!")),
        endpoints.whole(completion([{"type": "thinking"}, {"type": "text", "text": "Good luck!"}])),
        endpoints.chunked(event(chunk(content="Good luck!")) + event(chunk("stop"))),
        endpoints.chunked(event(chunk(content="Good luck!")) + event("[DONE]")),
    ],
    ids=["until-close", "with-length", "not-streamed", "parts", "no-done", "no-finish-reason"],
)
def test_other_ways_to_say_the_same(answer: Answer) -> None:
    with serving(answer) as endpoint:
        generator = fallback(endpoint)
        assert "".join(generator.stream(CONTEXT)) == "Good luck!"
        assert generator.reply(CONTEXT).text == "Good luck!"


BEGINNING = event(chunk(content="That is good. It will not be a problem that you "))


@pytest.mark.parametrize(
    "answer",
    [
        endpoints.chunked(BEGINNING, is_complete=False),
        endpoints.chunked(BEGINNING),
        endpoints.raw(
            endpoints.head(200, "Content-Type: text/event-stream", "Content-Length: 999") + BEGINNING
        ),
        endpoints.chunked(BEGINNING + b'data: {"choices": [{"del'),
        endpoints.chunked(BEGINNING + event({"error": {"message": "overloaded"}})),
        endpoints.chunked(BEGINNING + event(chunk("content_filter"))),
        endpoints.chunked(BEGINNING + b"data: \xff\n\n"),
        endpoints.raw(endpoints.STREAM_HEAD + b"%x\r\n%b\r\nzz\r\n" % (len(BEGINNING), BEGINNING)),
    ],
    ids=["lost", "no-end", "short", "half-event", "error", "filtered", "not-utf8", "bad-chunk"],
)
def test_a_stream_that_breaks_off_is_an_error(answer: Answer) -> None:
    """And is not tried again: a part of it was given out already."""
    pieces: list[str] = []
    with serving(answer) as endpoint, fails() as messages:
        pieces.extend(fallback(endpoint, retries=2, **RETRY).stream(CONTEXT))
    assert "".join(pieces) == "That is good. It will not be a problem that you"
    assert messages[0].startswith(f"the endpoint at {endpoint.address} ")
    assert len(endpoint.requests) == 1


def test_a_stream_that_breaks_off_before_it_gave_anything_is_tried_again() -> None:
    lost = endpoints.chunked(event(chunk(content="")), is_complete=False)
    with serving(lost, endpoints.chunked(endpoints.events(TEXT))) as endpoint:
        assert "".join(fallback(endpoint, retries=1, **RETRY).stream(CONTEXT)) == TEXT


# Answers that cannot be used


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (endpoints.whole(b"<html>Log in</html>", kind="text/html"), "answers with text/html, not JSON"),
        (endpoints.raw(endpoints.head(200) + b"{}"), "answers with no content type, not JSON"),
        (endpoints.whole(b"{oops"), "answers with something that is not JSON"),
        (endpoints.whole(b"\xff\xfe{"), "answers with something that is not JSON"),
        (endpoints.whole(b"[" * 200_000), "answers with something that is not JSON"),
        (endpoints.whole(["a"]), "answers with JSON of another shape than a chat completion"),
        (endpoints.whole({"choices": "none"}), "answers with JSON of another shape"),
        (endpoints.whole({"choices": [{"message": "hello"}]}), "answers with JSON of another shape"),
        (endpoints.whole(completion(7)), "answers with JSON of another shape"),
        (endpoints.whole({"choices": []}), "answers without a choice"),
        (endpoints.whole({"error": {"message": f"bad {KEY}"}}), "reports an error instead of an answer"),
        (endpoints.whole(completion(None, "tool_calls")), "answers without any text"),
        (endpoints.whole(completion(" \u200d\n")), "answers without any text"),
        (endpoints.whole(completion("<think>Hm, what to", "length")), "answers without any text"),
        (endpoints.whole(completion(None, refusal="I cannot help.")), "refuses to answer this context"),
        (endpoints.whole(completion("Well", "content_filter")), "refuses to answer this context"),
        (endpoints.whole(b" " * 1_100_000), "answers with more than 1,048,576 bytes"),
        (endpoints.whole({}, headers=["Content-Encoding: gzip"]), "answers in a compressed form"),
        (endpoints.whole({}, 307, ["Location: http://elsewhere.example/"]), "redirects are not followed"),
        (
            endpoints.whole({"error": {"message": "no such model: toy"}}, 404),
            "(no such model: toy). Check model",
        ),
        (endpoints.whole({"error": "max_tokens is too large"}, 400), "Bad Request (max_tokens is too large)"),
        (endpoints.whole({"error": {"message": "word " * 99}}, 400), "word word…)"),
        (endpoints.whole(b"[[[", 799), "answers 799"),
        (endpoints.raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak HTTP as it should (BadStatusLine)"),
        (endpoints.raw(endpoints.head(200, "X: " + "y" * 70_000)), "does not speak HTTP as it should"),
        (
            endpoints.raw(endpoints.head(200, "Content-Type: application/json", "Content-Length: 99")),
            "broke off",
        ),
    ],
)
def test_an_answer_of_no_use(answer: Answer, reason: str) -> None:
    with serving(answer) as endpoint:
        for ask in (fallback(endpoint).reply, lambda context: list(fallback(endpoint).stream(context))):
            with fails() as messages:
                ask(CONTEXT)
            assert messages[0].startswith(f"the endpoint at {endpoint.address} ")
            assert reason in messages[0]
            assert "elsewhere" not in messages[0]


def test_a_reply_that_was_cut_off_says_so() -> None:
    cut = "That is so annoying. I hope you fi"
    stream = event(chunk(content=cut)) + event(chunk("length")) + event("[DONE]")
    with serving(endpoints.whole(completion(cut, "length")), endpoints.chunked(stream)) as endpoint:
        reply = fallback(endpoint).reply(CONTEXT)
        assert reply.text == "".join(fallback(endpoint).stream(CONTEXT))
    assert reply.text == "That is so annoying. I hope you…"
    assert reply.note == "cut off at 40 tokens"
