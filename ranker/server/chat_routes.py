"""OpenAI's chat completions: the engine as a chat model, whole or as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from ranker.engine import Draft, Ranker
from ranker.engine.shapes import response_as_json
from ranker.server.batching import Job
from ranker.server.conventions import MODEL, ChatAnswer, ChatRequest, Message
from ranker.server.errors import DOCUMENTED, ApiError
from ranker.server.generating import Streamed
from ranker.server.openai_routes import NO_MODEL, new_id, require_model, words
from ranker.server.schemas import FiltersField
from ranker.server.service import Service, ServiceDep, as_json, json_response, server_timing
from ranker.types import Context, Vectors
from ranker.types import Response as Reply

router = APIRouter(prefix="/v1", tags=["conventions"], responses=DOCUMENTED | NO_MODEL)

_FACTS = ("source", "confidence", "emotion", "pool", "id", "note")


@router.post(
    "/chat/completions",
    response_model=ChatAnswer,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Whole, or as a stream of events"}},
)
async def chat_completions(body: ChatRequest, service: ServiceDep) -> Response:
    """The reply to the last turns, as the answer of a chat model."""
    require_model(body.model)
    wanted = body.n or 1
    service.check_k(wanted, "n")
    context = service.context(_turns(body.messages)[-service.settings.max_turns :])
    filters, when = service.filters((), FiltersField()), service.when(body.fallback)

    def finish(ranker: Ranker, vectors: Vectors, _: Vectors) -> tuple[Ranker, Draft]:
        return ranker, ranker.draft(context, vectors, k=wanted, fallback=when, filters=filters)

    done = await service.run(Job([context], (), finish))
    if not body.stream:
        reply, stages = await service.complete(done)
        return json_response(as_json(_chat_answer(context, reply, wanted)), stages)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    streamed = service.generations.stream(*done.value)
    return StreamingResponse(
        _events(service, context, streamed, wanted, with_usage=with_usage),
        media_type="text/event-stream",
        headers={"server-timing": server_timing(done.stages), "cache-control": "no-cache"},
    )


def _turns(messages: Iterable[Message]) -> list[str]:
    """What the user and the assistant said; instructions and tool calls are not part of a conversation."""
    turns = []
    for message in messages:
        if message.role not in ("user", "assistant"):
            continue
        content = message.content or ""
        if not isinstance(content, str):
            if any(part.type != "text" for part in content):
                raise ApiError.invalid("messages: only parts of type 'text' can be ranked")
            content = " ".join(part.text or "" for part in content)
        turns.append(content)
    if not turns:
        raise ApiError.invalid("messages: at least one of the role 'user' is needed")
    return turns


def _chat_answer(context: Context, reply: Reply, wanted: int) -> dict[str, Any]:
    texts = [reply.text, *_others(reply, wanted)]
    return {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ],
        "usage": _usage(context, texts),
        "ranker": _facts(reply),
    }


async def _events(
    service: Service, context: Context, streamed: Streamed, wanted: int, *, with_usage: bool
) -> AsyncIterator[bytes]:
    """The answer as server-sent events. The first choice comes as it is made, and its last event tells what
    the ranker knows about it; the others are candidates."""
    head = {
        "id": new_id("chatcmpl"),
        "created": int(time.time()),
        "model": MODEL,
        "object": "chat.completion.chunk",
    }

    def chunk(index: int, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": index, "delta": delta, "finish_reason": finish_reason}]}

    yield _event(chunk(0, {"role": "assistant", "content": ""}))
    async for piece in streamed.pieces():
        yield _event(chunk(0, {"content": piece}))
    reply = streamed.response
    service.count(reply)
    yield _event(chunk(0, {}, streamed.finish_reason) | {"ranker": _facts(reply)})
    others = _others(reply, wanted)
    for index, text in enumerate(others, start=1):
        yield _event(chunk(index, {"role": "assistant", "content": text}))
        yield _event(chunk(index, {}, "stop"))
    if with_usage:
        yield _event(head | {"choices": [], "usage": _usage(context, [reply.text, *others])})
    yield b"data: [DONE]\n\n"


def _others(reply: Reply, wanted: int) -> list[str]:
    """Candidates for the choices after the first."""
    ranked = [place.candidate for place in reply.ranking or ()]
    return [candidate.text for candidate in ranked if candidate != reply.candidate][: wanted - 1]


def _facts(reply: Reply) -> dict[str, Any]:
    shown = response_as_json(reply)
    return {name: shown[name] for name in _FACTS}


def _usage(context: Context, texts: list[str]) -> dict[str, int]:
    asked, answered = words(context.turns), words(texts)
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + as_json(value) + b"\n\n"
