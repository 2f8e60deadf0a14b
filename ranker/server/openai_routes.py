"""OpenAI's chat completions, models and embeddings, and the rerank of Cohere and Jina."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from ranker.engine import Ranker
from ranker.engine.shapes import response_as_json
from ranker.server.batching import Job
from ranker.server.conventions import (
    MODEL,
    ChatAnswer,
    ChatRequest,
    EmbeddingsAnswer,
    EmbeddingsRequest,
    Message,
    ModelsAnswer,
    ModelShape,
    RerankAnswer,
    RerankRequest,
)
from ranker.server.errors import DOCUMENTED, ApiError
from ranker.server.schemas import ErrorAnswer, FiltersField
from ranker.server.service import ServiceDep, as_json, json_response, server_timing
from ranker.types import Context, Vectors
from ranker.types import Response as Reply

_NO_MODEL: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer, "description": "No such model"}}
router = APIRouter(prefix="/v1", tags=["conventions"], responses=DOCUMENTED | _NO_MODEL)

_FACTS = ("source", "confidence", "emotion", "pool", "id", "note")
_CREATED = 1735689600
"""A model has a birthday in OpenAI's shape; this one's is of no use to anyone."""


@router.get("/models", response_model=ModelsAnswer)
async def models() -> Response:
    return json_response(as_json({"object": "list", "data": [_model()]}), {})


@router.get("/models/{model}", response_model=ModelShape)
async def model(model: str) -> Response:
    _require_model(model)
    return json_response(as_json(_model()), {})


@router.post(
    "/chat/completions",
    response_model=ChatAnswer,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Whole, or as a stream of events"}},
)
async def chat_completions(body: ChatRequest, service: ServiceDep) -> Response:
    """The reply to the last turns, as the answer of a chat model."""
    _require_model(body.model)
    wanted = body.n or 1
    service.check_k(wanted, "n")
    context = service.context(_turns(body.messages)[-service.settings.max_turns :])
    filters = service.filters((), FiltersField())

    def finish(ranker: Ranker, vectors: Vectors, _: Vectors) -> Reply:
        return ranker.respond_vector(context, vectors, k=wanted, filters=filters)

    done = await service.run(Job([context], (), finish))
    service.count(done.value)
    answer = _chat_answer(context, done.value, wanted)
    if not body.stream:
        return json_response(as_json(answer), done.stages)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    return StreamingResponse(
        _events(answer, with_usage=with_usage),
        media_type="text/event-stream",
        headers={"server-timing": server_timing(done.stages), "cache-control": "no-cache"},
    )


@router.post("/embeddings", response_model=EmbeddingsAnswer)
async def embeddings(body: EmbeddingsRequest, service: ServiceDep) -> Response:
    """Unit vectors of texts; inner products of a context's and a candidate's are the ranker's scores."""
    _require_model(body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    service.check_texts(texts, "input")
    dim = service.live.ranker.encoder.dim
    if body.dimensions is not None and body.dimensions != dim:
        raise ApiError.invalid(f"dimensions: the encoder has {dim}")
    as_contexts = body.input_type == "context"
    contexts = [service.context(text) for text in texts] if as_contexts else []

    def finish(_: Ranker, of_contexts: Vectors, of_candidates: Vectors) -> bytes:
        vectors = of_contexts if as_contexts else of_candidates
        shown = _base64_rows(vectors) if body.encoding_format == "base64" else vectors.tolist()
        words = _words(texts)
        return as_json(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": one}
                    for index, one in enumerate(shown)
                ],
                "model": MODEL,
                "usage": {"prompt_tokens": words, "total_tokens": words},
            }
        )

    done = await service.run(Job(contexts, () if as_contexts else texts, finish))
    return json_response(done.value, done.stages)


@router.post("/rerank", response_model=RerankAnswer, response_model_exclude_none=True)
async def rerank(body: RerankRequest, service: ServiceDep) -> Response:
    """The caller's own candidates, best first."""
    texts = [one if isinstance(one, str) else one.text for one in body.documents]
    service.check_texts(texts, "documents")
    context = service.context(body.query)

    def finish(_: Ranker, vectors: Vectors, candidates: Vectors) -> bytes:
        scores = candidates @ vectors[0]
        results = []
        for place in np.argsort(-scores, kind="stable")[: body.top_n]:
            result: dict[str, Any] = {"index": int(place), "relevance_score": round(float(scores[place]), 4)}
            if body.return_documents:
                result["document"] = {"text": texts[place]}
            results.append(result)
        words = _words([*context.turns, *texts])
        usage = {"prompt_tokens": words, "total_tokens": words}
        return as_json({"id": _id("rerank"), "model": MODEL, "results": results, "usage": usage})

    done = await service.run(Job([context], texts, finish))
    return json_response(done.value, done.stages)


def _require_model(name: str) -> None:
    if name != MODEL:
        message = f"there is no such model here; the only one is called {MODEL!r}"
        raise ApiError(404, message, code="model_not_found")


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "response-ranker"}


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
    others = [place.candidate.text for place in reply.ranking or () if place.candidate != reply.candidate]
    texts = [reply.text, *others][:wanted]
    asked, answered = _words(context.turns), _words(texts)
    facts = response_as_json(reply)
    return {
        "id": _id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
        },
        "ranker": {name: facts[name] for name in _FACTS},
    }


async def _events(answer: dict[str, Any], *, with_usage: bool) -> AsyncIterator[bytes]:
    """The answer as server-sent events: each choice word by word, as clients that show progress expect."""
    head = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
        return _event(head | {"choices": [choice]})

    for choice in answer["choices"]:
        index = choice["index"]
        yield chunk(index, {"role": "assistant", "content": ""})
        first, *rest = choice["message"]["content"].split(" ")
        yield chunk(index, {"content": first})
        for word in rest:
            yield chunk(index, {"content": f" {word}"})
        yield chunk(index, {}, "stop")
    if with_usage:
        yield _event(head | {"choices": [], "usage": answer["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + as_json(value) + b"\n\n"


def _base64_rows(vectors: Vectors) -> list[str]:
    """Each row's little-endian float32 bytes."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]


def _words(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"
