"""The encoder that answers: ONNX Runtime and tokenizers, no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from ranker.encoders.card import EncoderCard
from ranker.encoders.layout import TokenLayout
from ranker.errors import ConfigError, IntegrityError
from ranker.labels import read_prepender
from ranker.types import Calibration, Context, Progress, Vectors

T = TypeVar("T")

_CHUNK = 4096
"""Texts tokenised ahead: bounds the memory of a large job, and is long enough to sort by length."""
_DEFAULT_MAX_THREADS = 4


class OnnxEncoder:
    """An encoder folder (see ranker.encoders.card) at work. Thread-safe and deterministic.

    `threads` is how many texts are encoded at once, each on one core: with two threads up to twice
    as many short texts a second as when sharing each text between two cores. An int8 graph gets one text at a
    time, since the texts of a batch would share one activation range: so a text's vector does not depend on
    the texts beside it. Batches of 32 would be about 5 % faster.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        """Raises IntegrityError where the folder is incomplete, damaged or of another kind."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads must be at least 1, not {threads}")
        folder = Path(folder)
        card = EncoderCard.load(folder)
        self._card = card
        self._threads = threads or min(_DEFAULT_MAX_THREADS, _available_cores())
        self._layout = TokenLayout(
            card.read_file(folder, card.tokenizer),
            card.layout,
            source=str(folder / card.tokenizer),
            prepender=read_prepender(folder, card.prepend) if card.prepend else None,
        )
        self._context_session = _session(folder, card, card.context_graph)
        self._candidate_session = (
            self._context_session
            if card.candidate_graph == card.context_graph
            else _session(folder, card, card.candidate_graph)
        )

    @property
    def card(self) -> EncoderCard:
        return self._card

    @property
    def dim(self) -> int:
        return self._card.dim

    @property
    def fingerprint(self) -> str:
        return self._card.fingerprint

    @property
    def calibration(self) -> Calibration | None:
        return self._card.calibration

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        """(contexts, dim)."""
        return self._encode(contexts, self._layout.context, self._context_session, progress)

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """(texts, dim). Raises InputError where a text is empty."""
        return self._encode(texts, self._layout.candidate, self._candidate_session, progress)

    def _encode(
        self, given: Sequence[T], lay_out: Callable[[T], list[int]], session: Any, progress: Progress | None
    ) -> Vectors:
        vectors = np.empty((len(given), self.dim), dtype=np.float32)
        done = 0
        for start in range(0, len(given), _CHUNK):
            rows = [lay_out(one) for one in given[start : start + _CHUNK]]
            for places, found in self._run_all(session, rows):
                vectors[[start + place for place in places]] = found
                done += len(places)
                if progress is not None:
                    progress(done, len(given))
        return vectors

    def _run_all(self, session: Any, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Vectors]]:
        """Batches of like length, longest first, each with the places of its rows."""
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]), reverse=True)
        size = self._card.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]

        def run(places: list[int]) -> tuple[list[int], Vectors]:
            return places, self._run(session, [rows[place] for place in places])

        if self._threads == 1 or len(batches) == 1:
            yield from map(run, batches)
        else:
            with ThreadPoolExecutor(min(self._threads, len(batches))) as workers:
                yield from workers.map(run, batches)

    def _run(self, session: Any, rows: Sequence[Sequence[int]]) -> Vectors:
        """Vectors of rows sorted longest first."""
        ids = np.full((len(rows), len(rows[0])), self._layout.pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, values in enumerate(rows):
            ids[row, : len(values)] = values
            mask[row, : len(values)] = 1
        found: Vectors = session.run(["vector"], {"input_ids": ids, "attention_mask": mask})[0]
        return found


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def import_onnxruntime() -> ModuleType:
    """ONNX Runtime, kept from sending usage data to its maker, which it does by default.

    It asks the environment once, as it is first imported: so import it here only.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    return import_module("onnxruntime")


def _session(folder: Path, card: EncoderCard, name: str) -> Any:
    """A session of a graph whose hash was checked, and whose inputs and outputs are as the card says."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Measured on int8 MiniLM, one thread: the levels above ran 3 % slower at 16 tokens and 18 % at 40.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    data = card.read_file(folder, name)
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        inputs = {one.name for one in session.get_inputs()}
        outputs = {one.name: one.shape[-1] for one in session.get_outputs()}
    except Exception as error:  # onnxruntime's errors share no other root
        raise IntegrityError(f"{folder / name} is not a graph that ONNX Runtime can run ({error})") from error
    if inputs != {"input_ids", "attention_mask"} or outputs.get("vector") != card.dim:
        raise IntegrityError(f"{folder / name} does not map token ids to vectors of {card.dim} dimensions")
    return session
