"""OpenAI's models and embeddings, and the rerank of Cohere and Jina."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response

from ranker.engine import Ranker
from ranker.server.batching import Job
from ranker.server.conventions import (
    MODEL,
    EmbeddingsAnswer,
    EmbeddingsRequest,
    ModelsAnswer,
    ModelShape,
    RerankAnswer,
    RerankRequest,
)
from ranker.server.errors import DOCUMENTED, ApiError
from ranker.server.schemas import ErrorAnswer
from ranker.server.service import ServiceDep, as_json, json_response
from ranker.types import Vectors

NO_MODEL: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer, "description": "No such model"}}
router = APIRouter(prefix="/v1", tags=["conventions"], responses=DOCUMENTED | NO_MODEL)

_CREATED = 1735689600
"""A model has a birthday in OpenAI's shape; this one's is of no use to anyone."""


@router.get("/models", response_model=ModelsAnswer)
async def models() -> Response:
    return json_response(as_json({"object": "list", "data": [_model()]}), {})


@router.get("/models/{model}", response_model=ModelShape)
async def model(model: str) -> Response:
    require_model(model)
    return json_response(as_json(_model()), {})


@router.post("/embeddings", response_model=EmbeddingsAnswer)
async def embeddings(body: EmbeddingsRequest, service: ServiceDep) -> Response:
    """Unit vectors of texts; inner products of a context's and a candidate's are the ranker's scores."""
    require_model(body.model)
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
        count = words(texts)
        return as_json(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": one}
                    for index, one in enumerate(shown)
                ],
                "model": MODEL,
                "usage": {"prompt_tokens": count, "total_tokens": count},
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
        count = words([*context.turns, *texts])
        usage = {"prompt_tokens": count, "total_tokens": count}
        return as_json({"id": new_id("rerank"), "model": MODEL, "results": results, "usage": usage})

    done = await service.run(Job([context], texts, finish))
    return json_response(done.value, done.stages)


def require_model(name: str) -> None:
    if name != MODEL:
        message = f"there is no such model here; the only one is called {MODEL!r}"
        raise ApiError(404, message, code="model_not_found")


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "response-ranker"}


def _base64_rows(vectors: Vectors) -> list[str]:
    """Each row's little-endian float32 bytes."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]


def words(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"
