"""Vectors that a stage needs before its first step: a teacher's, and those that negatives are mined with.

Both take minutes on real data, so they are kept in the run's folder, in parts: a restart goes on from there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ranker.corpora import Pair
from ranker.errors import TrainingError
from ranker.index import build_index
from ranker.storage import write_bytes
from ranker.training.data import response_key
from ranker.types import Encoder, Progress, Vectors

T = TypeVar("T")
Half = NDArray[np.float16]

_PART = 2048
_DEPTH = 50
"""Candidates looked at for each context when mining."""


def teacher_vectors(
    teachers: Sequence[Encoder], pairs: Sequence[Pair], data_hash: str, folder: Path, progress: Progress
) -> tuple[Half, Half]:
    """Vectors of the contexts and of the responses, both (pairs, sum of the teachers' dims), kept on disk.

    Their inner products are the mean of the teachers' scores. Half precision: the error, under 0.001 of a
    cosine, is far below what a teacher knows.
    """
    contexts, responses = [], []
    unique, rows = _unique([pair.response for pair in pairs])
    for encoder in teachers:
        key = f"{data_hash[:12]}-{encoder.fingerprint[:16]}"
        share = np.float32(1 / np.sqrt(len(teachers)))
        made = _in_parts(
            [pair.context for pair in pairs], encoder.encode_contexts, folder / f"{key}-contexts", progress
        )
        contexts.append((made * share).astype(np.float16))
        made = _in_parts(unique, encoder.encode_candidates, folder / f"{key}-responses", progress)
        responses.append((made * share).astype(np.float16)[rows])
    return np.concatenate(contexts, axis=1), np.concatenate(responses, axis=1)


def mined_negatives(
    encoder: Encoder,
    pairs: Sequence[Pair],
    data_hash: str,
    folder: Path,
    progress: Progress,
    *,
    count: int,
    margin: float,
    seed: int,
) -> list[list[str]]:
    """For each pair, the `count` best-scoring responses of other pairs that are clearly worse than its own.

    A candidate counts only where its score is at most (1 - margin) of the true response's, and its text
    differs by more than case and punctuation; where too few are left, random ones fill up. Written here
    because sentence-transformers' miner encodes plain strings, and a context is several turns in our layout.

    Raises TrainingError where the pairs have too few distinct responses.
    """
    unique, rows = _unique([pair.response for pair in pairs])
    keys = np.array([response_key(text) for text in unique], np.int64)
    if len(set(keys.tolist())) <= count:
        raise TrainingError(f"too few distinct responses to mine {count} negatives")
    key = f"{data_hash[:12]}-{encoder.fingerprint[:16]}"
    responses = _in_parts(unique, encoder.encode_candidates, folder / f"{key}-responses", progress)
    contexts = _in_parts(
        [pair.context for pair in pairs], encoder.encode_contexts, folder / f"{key}-contexts", progress
    )
    hits = build_index("flat", responses).search(contexts, _DEPTH)
    generator = np.random.default_rng(seed)
    chosen: list[list[str]] = []
    for place, row in enumerate(rows):
        limit = float(contexts[place] @ responses[row])
        limit -= margin * abs(limit)
        fitting = hits.ids[place][(hits.scores[place] <= limit) & (keys[hits.ids[place]] != keys[row])]
        chosen.append(_fill(fitting.tolist(), keys, int(keys[row]), count, generator, unique))
    return chosen


def _fill(
    found: list[int],
    keys: NDArray[np.int64],
    own: int,
    count: int,
    generator: np.random.Generator,
    texts: Sequence[str],
) -> list[str]:
    """The first `count` of `found` with distinct keys, filled up with random ones."""
    taken: dict[int, int] = {}
    for row in found:
        if len(taken) == count:
            break
        taken.setdefault(int(keys[row]), row)
    while len(taken) < count:
        row = int(generator.integers(len(keys)))
        if int(keys[row]) != own:
            taken.setdefault(int(keys[row]), row)
    return [texts[row] for row in taken.values()]


def _unique(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct texts, and for each of `texts` its row among them."""
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}
    return unique, np.array([place[text] for text in texts], np.int64)


def _in_parts(
    given: Sequence[T], encode: Callable[[Sequence[T]], Vectors], stem: Path, progress: Progress
) -> Vectors:
    """`encode(given)`, each part written to disk as soon as it is made."""
    parts: list[Vectors] = []
    for start in range(0, len(given), _PART):
        path = stem.with_name(f"{stem.name}-{start // _PART:04d}.npy")
        if path.is_file():
            parts.append(np.load(path, allow_pickle=False).astype(np.float32))
        else:
            made = encode(given[start : start + _PART])
            buffer = io.BytesIO()
            np.save(buffer, made.astype(np.float16), allow_pickle=False)
            write_bytes(path, buffer.getvalue())
            parts.append(made.astype(np.float16).astype(np.float32))
        progress(min(start + _PART, len(given)), len(given))
    return np.concatenate(parts)
