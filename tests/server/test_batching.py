from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ranker import Ranker
from ranker.home import Home
from ranker.server.batching import Batcher, Done, Job
from ranker.server.errors import ApiError
from ranker.server.metrics import Metrics
from ranker.types import Context, Progress, Vectors


class Recorder:
    """An encoder that notes its batches, and works on none while `gate` is closed."""

    dim, fingerprint, calibration = 256, "hashing-1-256", None

    def __init__(self, ranker: Ranker) -> None:
        self._encoder = ranker.encoder
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        self.batches.append([context.last for context in contexts])
        assert self.gate.wait(10)
        if any(context.last == "poison" for context in contexts):
            raise ValueError("poison")
        return self._encoder.encode_contexts(contexts)

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        return self._encoder.encode_candidates(texts)


@pytest.fixture
def ranker(home: Home) -> Ranker:
    return Ranker.open("ed", home=home)


@pytest.fixture
def recorder(ranker: Ranker) -> Recorder:
    return Recorder(ranker)


def batcher_of(
    ranker: Ranker,
    recorder: Recorder,
    *,
    threads: int = 1,
    size: int = 32,
    wait: float = 0.0,
    limit: int = 64,
) -> Batcher:
    observed = Ranker(ranker.bundles, recorder)
    return Batcher(
        lambda: observed, Metrics(), threads=threads, batch_size=size, wait_seconds=wait, limit=limit
    )


@contextmanager
def closing(batcher: Batcher) -> Iterator[Batcher]:
    try:
        yield batcher
    finally:
        batcher.close()


def best(ranker: Ranker, vectors: Vectors, _: Vectors) -> str:
    return ranker.rank_vectors([Context.of("x")], vectors, 1)[0][0].candidate.text


def job(text: str) -> Job[str]:
    return Job([Context.of(text)], (), best)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 20)

    asyncio.run(bounded())


def test_what_waits_while_a_batch_is_in_work_is_the_next_batch(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder)) as batcher:
            recorder.gate.clear()
            first = asyncio.create_task(batcher.run(job("my dog")))
            await until(lambda: len(recorder.batches) == 1)
            others = [asyncio.create_task(batcher.run(job(text))) for text in ("exam", "party", "promotion")]
            await asyncio.sleep(0)
            recorder.gate.set()
            done = [task.value for task in await asyncio.gather(first, *others)]
        assert recorder.batches == [["my dog"], ["exam", "party", "promotion"]]
        assert done == [
            ranker.rank(text, k=1)[0].candidate.text for text in ("my dog", "exam", "party", "promotion")
        ]

    run(work())


def test_a_lone_job_does_not_wait(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder, threads=2, wait=5.0)) as batcher:
            done: Done[str] = await asyncio.wait_for(batcher.run(job("my dog")), 2)
            assert done.stages["queue"] < 1

    run(work())


def test_a_free_thread_waits_for_company_while_another_works(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder, threads=2, wait=0.2)) as batcher:
            recorder.gate.clear()
            tasks = [asyncio.create_task(batcher.run(job("my dog")))]
            await until(lambda: len(recorder.batches) == 1)
            for text in ("exam", "party"):
                tasks.append(asyncio.create_task(batcher.run(job(text))))
                await asyncio.sleep(0.02)
            assert len(recorder.batches) == 1
            await until(lambda: len(recorder.batches) == 2)  # the wait is over, the first still works
            recorder.gate.set()
            await asyncio.gather(*tasks)
        assert recorder.batches == [["my dog"], ["exam", "party"]]

    run(work())


def test_batches_are_bounded_in_texts(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder, size=4)) as batcher:
            recorder.gate.clear()
            tasks = [asyncio.create_task(batcher.run(job("first")))]
            await until(lambda: len(recorder.batches) == 1)
            large = Job([Context.of("large")], ["text"] * 10, best)
            for one in (job("a"), job("b"), large, job("c")):
                tasks.append(asyncio.create_task(batcher.run(one)))
            await asyncio.sleep(0)
            recorder.gate.set()
            await asyncio.gather(*tasks)
        assert recorder.batches == [["first"], ["a", "b"], ["large"], ["c"]]

    run(work())


def test_one_bad_job_does_not_fail_the_others(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder)) as batcher:
            recorder.gate.clear()
            tasks = [asyncio.create_task(batcher.run(job("first")))]
            await until(lambda: len(recorder.batches) == 1)
            tasks += [asyncio.create_task(batcher.run(job(text))) for text in ("my dog", "poison", "exam")]
            await asyncio.sleep(0)
            recorder.gate.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, ValueError) for one in done] == [False, False, True, False]

    run(work())


def test_too_many_waiting_are_refused_and_given_up_ones_skipped(ranker: Ranker, recorder: Recorder) -> None:
    async def work() -> None:
        with closing(batcher_of(ranker, recorder, limit=2)) as batcher:
            recorder.gate.clear()
            first = asyncio.create_task(batcher.run(job("first")))
            await until(lambda: len(recorder.batches) == 1)
            given_up = asyncio.create_task(batcher.run(job("given up")))
            kept = asyncio.create_task(batcher.run(job("kept")))
            await asyncio.sleep(0)
            with pytest.raises(ApiError) as refused:
                await batcher.run(job("too many"))
            assert refused.value.status_code == 429
            given_up.cancel()
            recorder.gate.set()
            await asyncio.gather(first, kept)
        assert recorder.batches == [["first"], ["kept"]]

    run(work())
