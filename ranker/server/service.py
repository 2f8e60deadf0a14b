"""What the routes share: the live ranker behind the batcher, the limits, and what is kept back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from starlette.responses import Response

from ranker.engine import Boosts, Draft, Filters, Ranker, When
from ranker.errors import InputError, MismatchError, NotFoundError
from ranker.server.batching import Batcher, Done, Job
from ranker.server.errors import ApiError, from_ranker
from ranker.server.generating import Generations
from ranker.server.live import LiveRanker
from ranker.server.metrics import Metrics
from ranker.server.schemas import BoostsField, FallbackField, FiltersField
from ranker.server.settings import ServerSettings
from ranker.types import Context, Ranking
from ranker.types import Response as Reply

T = TypeVar("T")


class Service:
    """Made when the server starts, one for each process."""

    def __init__(
        self,
        settings: ServerSettings,
        live: LiveRanker,
        batcher: Batcher,
        metrics: Metrics,
        blocked: Callable[[], frozenset[str]],
    ) -> None:
        self.settings = settings
        self.live = live
        self.metrics = metrics
        self.generations = Generations(metrics, settings.generation_seconds)
        self._batcher = batcher
        self._blocked = blocked

    async def run(self, job: Job[T]) -> Done[T]:
        """Raises ApiError (422) where the ranker cannot use what the request gave."""
        try:
            return await self._batcher.run(job)
        except (InputError, NotFoundError) as error:  # an unknown pool or label, an empty text
            raise from_ranker(error) from error
        except MismatchError as error:  # its message names a folder
            raise ApiError.invalid(
                "boosts.response_intent: there is no predictor for the encoder of this server"
            ) from error

    async def complete(self, done: Done[tuple[Ranker, Draft]]) -> tuple[Reply, dict[str, float]]:
        """The reply, generated where its draft asks for it, and the seconds in each stage."""
        ranker, draft = done.value
        stages = done.stages
        began = time.perf_counter()
        reply = await self.generations.complete(ranker, draft)
        if draft.asks_generator:
            stages = stages | {"generate": time.perf_counter() - began}
        self.count(reply)
        return reply, stages

    def context(self, given: str | Sequence[str]) -> Context:
        """Raises ApiError (422) where it is empty or has too many turns."""
        if not isinstance(given, str) and len(given) > self.settings.max_turns:
            raise ApiError.invalid(f"context: at most {self.settings.max_turns} turns, not {len(given)}")
        try:
            return Context.of(given)
        except InputError as error:
            raise ApiError.invalid(f"context: {error}") from error

    def filters(self, pools: Sequence[str], filters: FiltersField) -> Filters:
        return Filters(
            pools=tuple(pools),
            emotions=tuple(filters.emotions),
            intents=tuple(filters.intents),
            licences=tuple(filters.licences),
            commercial_only=filters.commercial_only,
            blocked=self._blocked(),
        )

    def boosts(self, boosts: BoostsField) -> Boosts:
        return Boosts(tuple(boosts.emotions), tuple(boosts.intents), boosts.weight, boosts.response_intent)

    def when(self, fallback: FallbackField) -> When:
        return self.settings.fallback.when if fallback is None else fallback

    def check_k(self, k: int, name: str = "k") -> None:
        if k > self.settings.max_k:
            raise ApiError.invalid(f"{name}: at most {self.settings.max_k}, not {k}")

    def check_texts(self, texts: Sequence[str], name: str) -> None:
        if len(texts) > self.settings.max_candidates:
            raise ApiError.invalid(f"{name}: at most {self.settings.max_candidates}, not {len(texts)}")
        for place, text in enumerate(texts):
            if not text.strip():
                raise ApiError.invalid(f"{name}.{place}: the text is empty")

    def count(self, reply: Reply) -> None:
        """Note where a reply came from."""
        if reply.source != "retrieved":
            self.metrics.fallbacks.labels(reply.source).inc()
        elif reply.note:
            self.metrics.low_confidence.inc()
        if reply.source == "fixed":
            self.metrics.safety.labels("fixed").inc()
        if reply.ranking is not None:
            self.count_refused(reply.ranking)

    def count_refused(self, ranking: Ranking) -> None:
        if ranking.refused:
            self.metrics.safety.labels("skipped").inc(ranking.refused)


async def service_of(request: Request) -> Service:
    """Async although it waits for nothing: FastAPI calls a plain function in a thread, which costs more."""
    return cast(Service, request.app.state.service)


ServiceDep = Annotated[Service, Depends(service_of)]


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def json_response(content: bytes, stages: Mapping[str, float]) -> Response:
    """JSON, with the time of each stage in the header."""
    return Response(content, headers={"server-timing": server_timing(stages)}, media_type="application/json")


def server_timing(stages: Mapping[str, float]) -> str:
    """The value of the header Server-Timing, in milliseconds."""
    return ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in stages.items())
