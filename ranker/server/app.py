"""The app factory. Nothing is opened before the server starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from types import FrameType
from typing import cast

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, Response

from ranker.feedback import FEEDBACK_FILE, FeedbackStore
from ranker.home import Home
from ranker.server import chat_routes, docs, feedback_routes, openai_routes, operations, page, routes
from ranker.server.batching import Batcher
from ranker.server.errors import install_error_handlers
from ranker.server.gate import Gate, Traffic
from ranker.server.live import LiveRanker
from ranker.server.metrics import Metrics
from ranker.server.service import Service
from ranker.server.settings import ServerSettings
from ranker.types import Fallback

logger = logging.getLogger("ranker.server")

_OPENAPI_PATH = "/openapi.json"


def create_app(settings: ServerSettings, generator: Fallback | None = None) -> FastAPI:
    """The ASGI app. The indexes, the encoder and the feedback store are opened in its lifespan.

    `generator`, one of the caller's own, is asked in place of the one that the settings name.

    Raises ConfigError where API keys are asked for but cannot be read.
    """
    metrics, traffic = Metrics(), Traffic()
    app = FastAPI(
        title="response-ranker",
        version=version("response-ranker"),
        description="Ranks human replies to a conversation.",
        lifespan=lambda app: _lifespan(app, settings, metrics, traffic, generator),
        openapi_url=_OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(routes.router)
    app.include_router(chat_routes.router)
    app.include_router(openai_routes.router)
    app.include_router(operations.router(traffic, metrics))
    open_paths = {docs.PATH, _OPENAPI_PATH} | operations.OPERATIONS_PATHS
    if settings.feedback:
        app.include_router(feedback_routes.router(lambda: cast(FeedbackStore, app.state.feedback)))
    if settings.page:
        app.include_router(page.router())
        open_paths |= page.PAGE_PATHS

    @app.get(docs.PATH, include_in_schema=False)
    def show_docs() -> Response:
        return HTMLResponse(docs.docs_page(app.openapi()))

    install_error_handlers(app)
    app.add_middleware(
        Gate,
        settings=settings,
        keys=settings.keys(),
        traffic=traffic,
        metrics=metrics,
        routes={*app.openapi()["paths"], *open_paths},
        open_paths=open_paths,
    )
    if settings.cors_origins:
        # Outside the gate: a browser asks for permission without a key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["Server-Timing", "Retry-After"],
        )
    return app


def openapi_json() -> str:
    """The OpenAPI document of the server with its default settings, as it is checked in."""
    return json.dumps(create_app(ServerSettings()).openapi(), indent=2, ensure_ascii=False) + "\n"


@contextlib.asynccontextmanager
async def _lifespan(
    app: FastAPI,
    settings: ServerSettings,
    metrics: Metrics,
    traffic: Traffic,
    generator: Fallback | None,
) -> AsyncIterator[None]:
    home = Home.find(settings.home)
    with contextlib.ExitStack() as closing:
        closing.callback(metrics.close)
        live = await asyncio.to_thread(LiveRanker.open, settings, home, metrics, generator)
        batcher = Batcher(
            lambda: live.ranker,
            metrics,
            threads=settings.threads_per_worker(),
            batch_size=settings.batch_size,
            wait_seconds=settings.batch_wait_ms / 1000,
            limit=settings.max_concurrency,
        )
        closing.callback(batcher.close)
        store = _open_store(settings, home, closing)
        app.state.feedback = store
        app.state.service = Service(
            settings, live, batcher, metrics, store.blocked_ids if store else frozenset
        )
        watcher = asyncio.create_task(live.watch())
        closing.callback(watcher.cancel)
        closing.enter_context(_draining_on_sigterm(traffic, settings.drain_seconds))
        yield


def _open_store(settings: ServerSettings, home: Home, closing: contextlib.ExitStack) -> FeedbackStore | None:
    if not settings.feedback:
        return None
    return closing.enter_context(
        FeedbackStore.open(home.root / FEEDBACK_FILE, max_entries=settings.max_feedback)
    )


@contextlib.contextmanager
def _draining_on_sigterm(traffic: Traffic, seconds: float) -> Iterator[None]:
    """On SIGTERM say so at /readyz and in `Connection: close`, and only after `seconds` tell the server.

    The server then stops to accept at once, and a connection that is just coming in would be lost.
    """
    before = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before):
        yield  # not run by a server that ends on SIGTERM
        return
    loop = asyncio.get_running_loop()

    def begin(number: int, _: FrameType | None) -> None:
        traffic.is_draining = True
        loop.call_soon_threadsafe(loop.call_later, seconds, before, number, None)

    signal.signal(signal.SIGTERM, begin)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
