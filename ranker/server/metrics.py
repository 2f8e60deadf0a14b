"""What Prometheus reads at /metrics."""

from __future__ import annotations

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from ranker.server.errors import REJECTED

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where worker processes add up their numbers. It must be set before this module is imported."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The numbers of one app, in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter("ranker_requests", "Answers given.", ["route", "status"], registry=registry)
        self.latency = Histogram(
            "ranker_request_seconds",
            "From request to answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.stages = Histogram(
            "ranker_stage_seconds",
            "Time in one stage: queue, encode, rank, generate.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "ranker_requests_in_flight",
            "Requests in work or waiting.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.queue = Gauge(
            "ranker_queue_requests",
            "Requests that wait for the encoder.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.batch_size = Histogram(
            "ranker_batch_requests", "Requests encoded together.", buckets=_SIZES, registry=registry
        )
        self.rejections = Counter(
            "ranker_rejections", "Requests refused, by the error's code.", ["code"], registry=registry
        )
        self.fallbacks = Counter(
            "ranker_fallbacks", "Replies that were not retrieved, by source.", ["source"], registry=registry
        )
        self.low_confidence = Counter(
            "ranker_low_confidence",
            "Retrieved replies that did not fit well.",
            registry=registry,
        )
        self.generations = Counter(
            "ranker_generations",
            "Replies asked of the generator, by outcome: generated, or why not.",
            ["outcome"],
            registry=registry,
        )
        self.safety = Counter(
            "ranker_safety",
            "Fixed messages given, candidates skipped, and generated replies refused.",
            ["action"],
            registry=registry,
        )
        self.reloads = Counter(
            "ranker_reloads", "New versions of an index, by outcome.", ["outcome"], registry=registry
        )
        self.candidates = Gauge(
            "ranker_candidates",
            "Candidates that can be ranked.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        # At 0 from the start: a rate does not see the first event of a counter that appears with it.
        for counter, values in (
            (self.fallbacks, ("generated", "fixed")),
            (self.safety, ("fixed", "skipped", "refused")),
            (self.reloads, ("done", "refused")),
            (self.rejections, REJECTED.values()),
        ):
            for value in values:
                counter.labels(value)

    def text(self) -> bytes:
        """All numbers, those of the other worker processes included."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call] # theirs has no types
        return generate_latest(together)

    def close(self) -> None:
        """This process's gauges count no more."""
        if SHARED_FOLDER in os.environ:
            multiprocess.mark_process_dead(os.getpid())  # type: ignore[no-untyped-call] # as above
