"""Generated replies: requests wait for them, the event loop and the batches do not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Literal

from ranker.engine import Draft, Ranker
from ranker.engine.answers import request_of
from ranker.engine.generator import BoundedGenerator, Unanswered
from ranker.server.metrics import Metrics
from ranker.types import Reply, Response

FinishReason = Literal["stop", "length", "content_filter"]


class Generations:
    """Completes drafts with the ranker's generator, each within `seconds`. The generator itself limits how
    many it writes at once and how many wait: beyond, and whenever it fails, the retrieved reply is given."""

    def __init__(self, metrics: Metrics, seconds: float) -> None:
        self.metrics = metrics
        self.seconds = seconds

    async def complete(self, ranker: Ranker, draft: Draft) -> Response:
        generator = ranker.generator
        if not draft.asks_generator or generator is None:
            return draft.response
        began = time.perf_counter()
        try:
            pending = generator.submit(request_of(draft, ranker.guard))
            try:
                reply = await asyncio.wait_for(asyncio.wrap_future(pending.reply), self.seconds)
            except asyncio.TimeoutError:
                raise generator.late(self.seconds) from None
            finally:
                pending.stop()
        except Unanswered as problem:
            self.count(problem.problem, began)
            return draft.kept(problem)
        self.count("generated", began)
        return draft.generated(reply, generator.name)

    def stream(self, ranker: Ranker, draft: Draft) -> Streamed:
        return Streamed(self, ranker, draft)

    def count(self, outcome: str, began: float) -> None:
        self.metrics.generations.labels(outcome).inc()
        if outcome == "unsafe":
            self.metrics.safety.labels("refused").inc()
        self.metrics.stages.labels("generate").observe(time.perf_counter() - began)


class Streamed:
    """A reply in pieces: take all of `pieces`, then read the rest.

    A reply that is not generated comes word by word. Where the generator fails before its first words, the
    retrieved reply comes in their place; after them, the reply ends there, and `finish_reason` says why:
    "content_filter" for what may not be said, "length" for a failure or the end of its time.
    """

    def __init__(self, generations: Generations, ranker: Ranker, draft: Draft) -> None:
        self._generations = generations
        self._ranker = ranker
        self._draft = draft
        self.response = draft.response
        self.finish_reason: FinishReason = "stop"

    async def pieces(self) -> AsyncIterator[str]:
        draft, generator = self._draft, self._ranker.generator
        if draft.asks_generator and generator is not None:
            began, said = time.perf_counter(), ""
            try:
                async for piece in self._generated(generator):
                    said += piece
                    yield piece
            except Unanswered as problem:
                self._generations.count(problem.problem, began)
                self.response = draft.kept(problem)
                if said:
                    self.finish_reason = "content_filter" if problem.problem == "unsafe" else "length"
                    cut = draft.generated(Reply(said, "generated"), generator.name)
                    self.response = replace(cut, note=f"{problem.message}: the reply ends early")
                    return
            else:
                self._generations.count("generated", began)
                return
        first, *rest = self.response.text.split(" ")
        yield first
        for word in rest:
            yield f" {word}"

    async def _generated(self, generator: BoundedGenerator) -> AsyncIterator[str]:
        """Raises Unanswered. Sets the response at the end."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[str | None] = asyncio.Queue()

        def emit(piece: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(arrived.put_nowait, piece)

        request = replace(request_of(self._draft, self._ranker.guard), emit=emit)
        pending = generator.submit(request)
        pending.reply.add_done_callback(lambda _: emit(None))
        end = loop.time() + self._generations.seconds
        try:
            while True:
                try:
                    piece = await asyncio.wait_for(arrived.get(), end - loop.time())
                except asyncio.TimeoutError:
                    raise generator.late(self._generations.seconds) from None
                if piece is None:
                    break
                yield piece
            self.response = self._draft.generated(pending.reply.result(), generator.name)
        finally:
            pending.stop()
