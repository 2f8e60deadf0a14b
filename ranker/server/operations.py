"""Routes for operators: health, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ranker.server.errors import ApiError
from ranker.server.gate import Traffic
from ranker.server.metrics import Metrics
from ranker.server.schemas import ErrorAnswer, HealthAnswer

OPERATIONS_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Open to everybody: they tell nothing about what is said."""


def router(traffic: Traffic, metrics: Metrics) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/healthz")
    async def healthz() -> HealthAnswer:
        """The process answers."""
        return HealthAnswer(status="ok")

    @routes.get("/readyz", responses={503: {"model": ErrorAnswer, "description": "About to stop"}})
    async def readyz() -> HealthAnswer:
        """New requests are welcome. Not before the indexes are open, nor after SIGTERM."""
        if traffic.is_draining:
            raise ApiError(503, "the server is about to stop")
        return HealthAnswer(status="ok")

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def show_metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(metrics.text(), media_type=metrics.content_type)

    return routes
