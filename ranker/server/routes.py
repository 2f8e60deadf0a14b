"""The native routes: rank, respond, score, pools."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from ranker.engine import Draft, Ranker
from ranker.engine.shapes import ranking_as_json, response_as_json
from ranker.server.batching import Job
from ranker.server.errors import DOCUMENTED
from ranker.server.schemas import (
    PoolsAnswer,
    RankAnswer,
    RankRequest,
    RespondAnswer,
    RespondRequest,
    ScoreAnswer,
    ScoreRequest,
)
from ranker.server.service import ServiceDep, as_json, json_response
from ranker.types import Vectors

router = APIRouter(prefix="/v1", tags=["ranker"], responses=DOCUMENTED)


@router.post("/rank", response_model=RankAnswer)
async def rank(body: RankRequest, service: ServiceDep) -> Response:
    """The k best candidates for a context, best first."""
    service.check_k(body.k)
    context = service.context(body.context)
    filters, boosts = service.filters(body.pools, body.filters), service.boosts(body.boosts)

    def finish(ranker: Ranker, vectors: Vectors, _: Vectors) -> bytes:
        [ranking] = ranker.rank_vectors(
            [context],
            vectors,
            body.k,
            filters=filters,
            boosts=boosts,
            diversity=body.diversity,
            keep_echoes=body.keep_echoes,
        )
        service.count_refused(ranking)
        return as_json(ranking_as_json(ranking))

    done = await service.run(Job([context], (), finish))
    return json_response(done.value, done.stages)


@router.post("/respond", response_model=RespondAnswer)
async def respond(body: RespondRequest, service: ServiceDep) -> Response:
    """One reply, with its source, its confidence, the user's emotion and the ranking behind it.

    Where nothing in the pool fits, a generator may answer. What may be a crisis gets a fixed message.
    """
    service.check_k(body.k)
    context = service.context(body.context)
    filters, boosts = service.filters(body.pools, body.filters), service.boosts(body.boosts)
    when = service.when(body.fallback)

    def finish(ranker: Ranker, vectors: Vectors, _: Vectors) -> tuple[Ranker, Draft]:
        draft = ranker.draft(context, vectors, k=body.k, fallback=when, filters=filters, boosts=boosts)
        return ranker, draft

    done = await service.run(Job([context], (), finish))
    reply, stages = await service.complete(done)
    return json_response(as_json(response_as_json(reply)), stages)


@router.post("/score", response_model=ScoreAnswer)
async def score(body: ScoreRequest, service: ServiceDep) -> Response:
    """How well each of the caller's own candidates replies to a context."""
    service.check_texts(body.candidates, "candidates")
    context = service.context(body.context)

    def finish(_: Ranker, vectors: Vectors, candidates: Vectors) -> bytes:
        scores = [round(float(one), 4) for one in candidates @ vectors[0]]
        return as_json({"context": context.turns, "scores": scores})

    done = await service.run(Job([context], body.candidates, finish))
    return json_response(done.value, done.stages)


@router.get("/pools", response_model=PoolsAnswer)
async def pools(service: ServiceDep) -> Response:
    """The pools that are ranked from, and the labels that filters may name."""
    bundles = service.live.ranker.bundles
    found = {
        "pools": [asdict(fact) for fact in service.live.pools],
        "emotions": sorted({name for bundle in bundles for name in bundle.labels("emotion")}),
        "intents": sorted({name for bundle in bundles for name in bundle.labels("intent")}),
    }
    return json_response(as_json(found), {})
