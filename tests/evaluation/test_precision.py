"""P@1,100: by hand, against a slow reference, and at the extremes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ranker.corpora import Pair
from ranker.encoders import HashingEncoder
from ranker.errors import InputError
from ranker.evaluation.precision import (
    Figure,
    encode_pairs,
    group_ranks,
    inline_precision,
    precision,
    summarise,
)
from ranker.types import Context, Progress, Provenance, Vectors


def unit(rows: NDArray[np.float64]) -> Vectors:
    vectors: Vectors = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return vectors


def pair(context: str, response: str, candidates: tuple[str, ...] = ()) -> Pair:
    return Pair(Context((context,)), response, (), Provenance("toy", "1", 2), candidates)


def test_ranks_by_hand() -> None:
    # Scores of context 0: 0.9 0.8 0.9 0.1. Its own response (0.9) ties with another text: rank 2.
    # Context 1: own 0.5, others 0.6 0.4 0.7: rank 3. Context 2: own 0.2, but candidate 3 has the same text
    # and 0.9, which counts; of other texts only 0.95 is before it: rank 2. Context 3: own is best: rank 1.
    scores = np.array(
        [[0.9, 0.8, 0.9, 0.1], [0.6, 0.5, 0.4, 0.7], [0.95, 0.8, 0.2, 0.9], [0.1, 0.2, 0.3, 0.4]], np.float32
    )
    contexts, responses = scores[None], np.eye(4, dtype=np.float32)[None]
    ranks = group_ranks(contexts, responses, np.array([[0, 1, 2, 2]]))
    assert ranks.tolist() == [[2, 3, 2, 1]]


def test_figures_by_hand() -> None:
    found = summarise([np.array([2, 3, 2, 1]), np.array([1, 1, 11, 4])], "shuffled", left_out=7)
    assert found.p_at_1.mean == pytest.approx((25 + 50) / 2)
    assert found.p_at_3.mean == pytest.approx((100 + 50) / 2)
    assert found.p_at_10.mean == pytest.approx((100 + 75) / 2)
    first, second = (1 / 2 + 1 / 3 + 1 / 2 + 1) / 4, (1 + 1 + 1 / 11 + 1 / 4) / 4
    assert found.mrr.mean == pytest.approx((first + second) / 2)
    assert found.mean_rank.mean == pytest.approx((2 + 4.25) / 2)
    assert (found.rows, found.left_out, found.seeds) == (4, 7, 2)
    assert found.to_dict()["p_at_1"]["mean"] == found.p_at_1.mean


def test_interval_by_hand() -> None:
    # Mean 4, standard deviation 2, three values: 4 ± 4.303 * 2 / sqrt(3).
    figure = Figure.of([2.0, 4.0, 6.0])
    assert (figure.mean, figure.low, figure.high) == pytest.approx((4.0, -0.9687, 8.9687), abs=1e-4)
    assert Figure.of([5.0]) == Figure(5.0, 5.0, 5.0)


def slow_precision(scores: NDArray[np.float64], texts: Sequence[str], order: Sequence[int]) -> float:
    """P@1 within groups of 100 in this order, candidate by candidate."""
    right = rows = 0
    for start in range(0, len(order) - 99, 100):
        group = order[start : start + 100]
        for row in group:
            accepted = max(scores[row][other] for other in group if texts[other] == texts[row])
            beaten = any(scores[row][other] >= accepted for other in group if texts[other] != texts[row])
            right += not beaten
            rows += 1
    return 100 * right / rows


def test_fast_is_the_slow_reference() -> None:
    """With repeated texts, and scores that tie: the vectors have few distinct values."""
    generator = np.random.default_rng(5)
    words = [f"reply {number}" for number in range(180)]
    texts = [random.Random(9 * row).choice(words) for row in range(437)]
    vector_of = {word: generator.integers(-1, 2, 6) for word in words}
    responses = np.array([vector_of[text] for text in texts], np.float64)
    contexts = responses + 2 * generator.integers(-1, 2, responses.shape)
    scores = contexts @ responses.T
    found = precision(contexts.astype(np.float32), responses.astype(np.float32), texts, seeds=4)
    slow = [
        slow_precision(scores, texts, np.random.default_rng(seed).permutation(437).tolist())
        for seed in range(4)
    ]
    assert found.p_at_1.mean == pytest.approx(np.mean(slow))
    assert 5 < found.p_at_1.mean < 90
    assert (found.rows, found.left_out, found.seeds) == (400, 37, 4)
    in_order = precision(contexts.astype(np.float32), responses.astype(np.float32), texts, shuffled=False)
    assert in_order.p_at_1.mean == pytest.approx(slow_precision(scores, texts, range(437)))
    assert in_order.seeds == 1


def test_extremes() -> None:
    texts = [f"reply {row}" for row in range(300)]
    vectors = unit(np.random.default_rng(0).normal(size=(300, 16)))
    perfect = precision(vectors, vectors, texts)
    assert (perfect.p_at_1.mean, perfect.mrr.mean, perfect.mean_rank.mean) == (100.0, 1.0, 1.0)
    constant = np.ones((300, 1), np.float32)
    lost = precision(constant, constant, texts)
    assert lost.p_at_1.mean <= 1.0
    assert lost.mean_rank.mean == 100.0
    repeated = precision(constant, constant, [f"reply {row % 150}" for row in range(300)])
    assert repeated.p_at_1.mean <= 1.0


def test_same_seed_same_figure_and_complete_last_group() -> None:
    texts = [f"reply {row}" for row in range(200)]
    generator = np.random.default_rng(1)
    contexts, responses = unit(generator.normal(size=(200, 4))), unit(generator.normal(size=(200, 4)))
    assert precision(contexts, responses, texts) == precision(contexts, responses, texts)
    assert precision(contexts, responses, texts).rows == 200
    assert precision(contexts[:199], responses[:199], texts[:199]).left_out == 99
    with pytest.raises(InputError, match="at least 100"):
        precision(contexts[:99], responses[:99], texts[:99])


def test_inline_candidates() -> None:
    rows = [
        pair("a red apple", "a red apple", ("blue boat", "green tree", "a red apple")),
        pair("a tall house", "nothing alike", ("a tall house", "nothing alike")),
        pair("no candidates", "here"),
    ]
    found = inline_precision(HashingEncoder(), rows)
    assert (found.grouping, found.rows, found.left_out) == ("inline", 2, 1)
    assert found.p_at_1.mean == 50.0
    with pytest.raises(InputError, match="inline"):
        inline_precision(HashingEncoder(), rows[2:])


def test_each_distinct_response_is_encoded_once() -> None:
    class Counting(HashingEncoder):
        encoded: tuple[str, ...] = ()

        def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
            self.encoded += tuple(texts)
            return super().encode_candidates(texts, progress)

    encoder = Counting()
    seen: list[tuple[int, int]] = []
    rows = [pair("one", "x"), pair("two", "y"), pair("three", "x")]
    contexts, responses = encode_pairs(encoder, rows, lambda done, of: seen.append((done, of)))
    assert encoder.encoded == ("x", "y")
    assert contexts.shape == responses.shape
    np.testing.assert_array_equal(responses[0], responses[2])
    np.testing.assert_array_equal(responses[1], HashingEncoder().encode_candidates(["y"])[0])
    assert seen[-1] == (5, 5)
