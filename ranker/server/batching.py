"""Requests that arrive together are encoded together, in threads beside the event loop.

A free thread takes what waits, so batches grow by themselves as load grows, and a lone request starts at
once. While another batch is in work, a small one may wait a few milliseconds for company.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ranker.engine import Ranker
from ranker.server.errors import ApiError
from ranker.server.metrics import Metrics
from ranker.types import Context, Vectors

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """What a request needs encoded, and what to make of it.

    `finish` gets the ranker whose encoder was used, the vectors of the contexts and those of the texts.
    """

    contexts: Sequence[Context]
    texts: Sequence[str]
    finish: Callable[[Ranker, Vectors, Vectors], T]

    @property
    def size(self) -> int:
        """Texts to encode."""
        return len(self.contexts) + len(self.texts)


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A job's result, and the seconds that it took in each stage."""

    value: T
    stages: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: Job[Any]
    future: asyncio.Future[Done[Any]]
    since: float = field(default_factory=time.perf_counter)


Outcome = Done[Any] | Exception


class Batcher:
    """Runs jobs on `threads` threads, in batches of up to `batch_size` texts (a larger job goes alone); at
    most `limit` jobs wait. All methods are for the event loop's thread."""

    def __init__(
        self,
        ranker: Callable[[], Ranker],
        metrics: Metrics,
        *,
        threads: int,
        batch_size: int,
        wait_seconds: float,
        limit: int,
    ) -> None:
        self._ranker = ranker
        self._metrics = metrics
        self._threads = threads
        self._batch_size = batch_size
        self._wait_seconds = wait_seconds
        self._limit = limit
        self._waiting: deque[_Waiting] = deque()
        self._working = 0
        self._timer: asyncio.TimerHandle | None = None
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ranker-batch")

    async def run(self, job: Job[T]) -> Done[T]:
        """Raises what `finish` or the encoder raises, and ApiError (429) where too many wait."""
        if len(self._waiting) >= self._limit:
            raise ApiError.overloaded()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, loop.create_future())
        self._waiting.append(waiting)
        self._metrics.queue.set(len(self._waiting))
        self._dispatch(loop)
        return await waiting.future

    def close(self) -> None:
        """Wait for the batches in work."""
        self._executor.shutdown(wait=True)

    def _dispatch(self, loop: asyncio.AbstractEventLoop, *, at_once: bool = False) -> None:
        """Give waiting jobs to the free threads, or wait a little for more to come."""
        if not self._waiting or self._working >= self._threads:
            return
        is_full = len(self._waiting) >= self._batch_size
        if self._working and self._wait_seconds and not (at_once or is_full):
            if self._timer is None:
                self._timer = loop.call_later(self._wait_seconds, self._wait_is_over, loop)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._next_batch()
        if batch:
            self._metrics.batch_size.observe(len(batch))
            self._working += 1
            work = loop.run_in_executor(self._executor, _run_batch, self._ranker(), batch)
            work.add_done_callback(lambda done: self._deliver(loop, batch, done))
        self._dispatch(loop)

    def _next_batch(self) -> list[_Waiting]:
        """The jobs that waited longest, without those whose requests were given up."""
        batch: list[_Waiting] = []
        texts = 0
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.future.done():
                texts += waiting.job.size
                if batch and texts > self._batch_size:
                    break
                batch.append(waiting)
            self._waiting.popleft()
        self._metrics.queue.set(len(self._waiting))
        return batch

    def _wait_is_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._dispatch(loop, at_once=True)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting], work: asyncio.Future[list[Outcome]]
    ) -> None:
        self._working -= 1
        for waiting, outcome in zip(batch, work.result(), strict=True):
            if waiting.future.done():
                continue
            if isinstance(outcome, Exception):
                waiting.future.set_exception(outcome)
                continue
            for stage, seconds in outcome.stages.items():
                self._metrics.stages.labels(stage).observe(seconds)
            waiting.future.set_result(outcome)
        self._dispatch(loop, at_once=True)


def _run_batch(ranker: Ranker, batch: Sequence[_Waiting]) -> list[Outcome]:
    """In a thread: encode all jobs together, then finish each."""
    start = time.perf_counter()
    contexts = [context for waiting in batch for context in waiting.job.contexts]
    texts = [text for waiting in batch for text in waiting.job.texts]
    try:
        context_vectors = ranker.encoder.encode_contexts(contexts)
        text_vectors = ranker.encoder.encode_candidates(texts)
    except Exception as error:
        if len(batch) == 1:
            return [error]
        # One job's text must not fail the others.
        return [outcome for waiting in batch for outcome in _run_batch(ranker, [waiting])]
    encoded = time.perf_counter()
    outcomes: list[Outcome] = []
    context_row = text_row = 0
    for waiting in batch:
        job = waiting.job
        context_end, text_end = context_row + len(job.contexts), text_row + len(job.texts)
        began = time.perf_counter()
        try:
            value = job.finish(
                ranker, context_vectors[context_row:context_end], text_vectors[text_row:text_end]
            )
        except Exception as error:  # delivered to the request that it belongs to
            outcomes.append(error)
        else:
            stages = {
                "queue": start - waiting.since,
                "encode": encoded - start,
                "rank": time.perf_counter() - began,
            }
            outcomes.append(Done(value, stages))
        context_row, text_row = context_end, text_end
    return outcomes
