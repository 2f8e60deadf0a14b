"""Retrieval from a pool and BLEU: by hand, and against a slow reference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ranker.errors import InputError
from ranker.evaluation.retrieval import Bleu, bleu, pool_ranks, recall, retrieval

pytest.importorskip("sacrebleu")


def test_ranks_by_hand() -> None:
    # One context; the pool scores 0.9 (another text), 0.5 (ties with the gold's 0.5), 0.7 (the gold's text).
    contexts = np.array([[1.0, 0.0]], np.float32)
    pool = np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.0]], np.float32)
    gold = np.array([[0.5, 0.0]], np.float32)
    ranks, best = pool_ranks(contexts, gold, ["said"], pool, ["other", "tie", "said"])
    assert (ranks.tolist(), best.tolist()) == ([2], [0])  # its copy's 0.7 counts: only 0.9 is before it
    ranks, _ = pool_ranks(contexts, gold, ["said"], pool, ["other", "tie", "third"])
    assert ranks.tolist() == [4]  # all three are before it: the tie loses


def test_recall_by_hand() -> None:
    ranks = np.array([1, 2, 10, 11, 100, 101, 1, 500])
    assert (recall(ranks, 1), recall(ranks, 10), recall(ranks, 100)) == (25.0, 50.0, 75.0)


def test_against_a_slow_reference() -> None:
    generator = np.random.default_rng(3)
    pool = generator.normal(size=(700, 5)).astype(np.float32)
    pool_texts = [f"reply {row % 600}" for row in range(700)]
    contexts = generator.normal(size=(301, 5)).astype(np.float32)
    gold = contexts + generator.normal(size=(301, 5)).astype(np.float32)
    texts = [f"reply {row * 3}" for row in range(301)]
    ranks, best = pool_ranks(contexts, gold, texts, pool, pool_texts)
    for row in range(0, 301, 7):
        scores = pool @ contexts[row]
        own = [float(scores[place]) for place in range(700) if pool_texts[place] == texts[row]]
        accepted = max([float(gold[row] @ contexts[row]), *own])
        before = [
            place for place in range(700) if pool_texts[place] != texts[row] and scores[place] >= accepted
        ]
        assert ranks[row] == 1 + len(before)
        assert best[row] == int(np.argmax(scores))


def test_bleu_by_hand() -> None:
    # "the cat sat down" / "the cat sat here": 3 of 4 words, 2 of 3 pairs, 1 of 2 triples match; no brevity.
    found = bleu(["The cat sat down"], ["the cat sat here"])
    one, two, three = 3 / 4, 2 / 3, 1 / 2
    assert found.orders[0] == pytest.approx(100 * one)
    assert found.orders[1] == pytest.approx(100 * math.sqrt(one * two))
    assert found.orders[2] == pytest.approx(100 * (one * two * three) ** (1 / 3))
    # No group of four matches: exponential smoothing counts half of one among one.
    assert found.orders[3] == pytest.approx(100 * (one * two * three * 1 / 2) ** (1 / 4))
    assert found.average == pytest.approx(sum(found.orders) / 4)
    assert bleu(["same words here now"], ["same words here now"]).average == pytest.approx(100)


def test_brevity_by_hand() -> None:
    # Two words for four: every word matches, times exp(1 - 4 / 2).
    assert bleu(["the cat"], ["the cat sat here"]).orders[0] == pytest.approx(100 * math.exp(-1))


def test_whole() -> None:
    vectors = np.eye(3, dtype=np.float32)
    texts = ["first reply here now", "second reply here now", "third reply here now"]
    found = retrieval(vectors, vectors, texts, vectors, texts)
    assert (found.recall_at_1, found.recall_at_100, found.median_rank) == (100.0, 100.0, 1.0)
    assert found.bleu == Bleu(found.bleu.orders)
    assert found.to_dict()["bleu"]["average"] == pytest.approx(100)
    assert (found.rows, found.pool) == (3, 3)
    with pytest.raises(InputError):
        retrieval(vectors, vectors, texts, np.empty((0, 3), np.float32), [])
