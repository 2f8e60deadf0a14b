"""Losses: against numbers worked out by hand, and against sentence-transformers' own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from ranker.training.batches import pad
from ranker.training.losses import (
    DistillationLoss,
    RankingLoss,
    batch_precision,
    divergence,
    ranking_loss,
)
from ranker.training.models import build_model
from ranker.training.settings import ModelSettings

LOG = math.log


def test_ranking_loss_by_hand() -> None:
    # Row softmaxes give the own response 3/4 and 1/2; columns give the own context 3/4 and 1/2.
    scores = torch.tensor([[LOG(3), 0.0], [0.0, 0.0]])
    rows = -(LOG(3 / 4) + LOG(1 / 2)) / 2
    assert float(ranking_loss(scores, both_directions=False)) == pytest.approx(rows)
    assert float(ranking_loss(scores, both_directions=True)) == pytest.approx(rows)
    lopsided = torch.tensor([[LOG(3), LOG(6)], [0.0, 0.0]])  # rows 3/9 and 1/2; columns 3/4 and 1/7
    columns = -(LOG(3 / 4) + LOG(1 / 7)) / 2
    expected = (-(LOG(3 / 9) + LOG(1 / 2)) / 2 + columns) / 2
    assert float(ranking_loss(lopsided, both_directions=True)) == pytest.approx(expected)


def test_negatives_join_the_rows_only() -> None:
    scores = torch.tensor([[LOG(3), 0.0, LOG(2)], [0.0, 0.0, 0.0]])  # rows 3/6 and 1/3; columns 3/4 and 1/2
    expected = (-(LOG(1 / 2) + LOG(1 / 3)) / 2 - (LOG(3 / 4) + LOG(1 / 2)) / 2) / 2
    assert float(ranking_loss(scores, both_directions=True)) == pytest.approx(expected)


def test_divergence_by_hand() -> None:
    # Teacher rows (3/4, 1/4) and (1/2, 1/2), student rows (1/2, 1/2) both.
    teacher = torch.tensor([[LOG(3), 0.0], [0.0, 0.0]])
    student = torch.zeros(2, 2)
    row = 3 / 4 * LOG(3 / 4 / (1 / 2)) + 1 / 4 * LOG(1 / 4 / (1 / 2))
    assert float(divergence(student, teacher, both_directions=False)) == pytest.approx(row / 2)
    assert float(divergence(student, teacher, both_directions=True)) == pytest.approx(row / 2)
    assert float(divergence(teacher, teacher, both_directions=True)) == pytest.approx(0.0, abs=1e-7)


def test_batch_precision() -> None:
    contexts = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.1]])
    responses = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert batch_precision(contexts, responses) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def model(base: Path) -> SentenceTransformer:
    return build_model(ModelSettings(base=str(base), max_tokens=32), None, lambda: ())


def columns(count: int) -> list[dict[str, Tensor]]:
    """Token ids of `count` columns of seven rows of differing lengths."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for _ in range(count):
        lengths = torch.randint(3, 12, (7,), generator=generator).tolist()
        rows = [torch.randint(5, 100, (length,), generator=generator).tolist() for length in lengths]
        made.append(pad(rows, 0))
    return made


def gradients(
    loss: torch.nn.Module, model: SentenceTransformer, given: list[dict[str, Tensor]]
) -> list[Tensor]:
    model.zero_grad()
    value = loss(given, torch.arange(7))
    torch.autograd.backward(value)
    return [
        value.detach(),
        *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None),
    ]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("cache", [False, True])
def test_micro_batched_loss_is_the_full_batch_loss(
    model: SentenceTransformer, both: bool, count: int, cache: bool
) -> None:
    """Value and gradients equal those of sentence-transformers' plain loss over the whole batch."""
    plain = MultipleNegativesRankingLoss(
        model,
        scale=20.0,
        directions=("query_to_doc", "doc_to_query") if both else ("query_to_doc",),
        partition_mode="per_direction",
    )
    micro_batched = RankingLoss(
        model, scale=20.0, learned_scale=False, both_directions=both, micro_batch=3, gradient_cache=cache
    )
    expected = gradients(plain, model, columns(count))
    found = gradients(micro_batched, model, columns(count))
    assert len(found) == len(expected) > 10
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert micro_batched.batch_loss == pytest.approx(float(expected[0]), rel=1e-4)


def test_our_function_is_theirs(model: SentenceTransformer) -> None:
    given = columns(3)
    with torch.no_grad():
        vectors = [model(dict(column))["sentence_embedding"] for column in given]
        theirs = RankingLoss(model, scale=20.0, learned_scale=False, both_directions=True, micro_batch=3)(
            given, torch.arange(7)
        )
    ours = ranking_loss(20.0 * vectors[0] @ torch.cat(vectors[1:]).T, both_directions=True)
    assert float(theirs) == pytest.approx(float(ours), rel=1e-5)


def test_distillation_is_the_sum_of_its_parts(model: SentenceTransformer) -> None:
    given = columns(2)
    generator = torch.Generator().manual_seed(5)
    teacher = [
        torch.nn.functional.normalize(torch.randn(7, 9, generator=generator), dim=1).half() for _ in range(2)
    ]
    loss = DistillationLoss(
        model,
        teacher[0],
        teacher[1],
        scale=15.0,
        teacher_scale=10.0,
        label_weight=0.3,
        both_directions=True,
        micro_batch=3,
    )
    order = torch.tensor([3, 1, 0, 2, 6, 5, 4])  # row i of the batch is pair order[i]
    with torch.no_grad():
        contexts, responses = (model(dict(column))["sentence_embedding"] for column in given)
        value = float(loss(given, order))
    student = 15.0 * contexts @ responses.T
    taught = 10.0 * teacher[0].float()[order] @ teacher[1].float()[order].T
    expected = divergence(student, taught, both_directions=True) + 0.3 * ranking_loss(
        student, both_directions=True
    )
    assert value == pytest.approx(float(expected), rel=1e-5)
    found = gradients(loss, model, given)
    assert any(float(gradient.abs().max()) > 1e-4 for gradient in found[1:])


def test_learned_scale_gets_a_gradient(model: SentenceTransformer) -> None:
    loss = RankingLoss(model, scale=20.0, learned_scale=True, both_directions=True, micro_batch=3)
    gradients(loss, model, columns(2))
    assert loss.learned_scale is not None
    assert loss.learned_scale.grad is not None
    assert float(loss.learned_scale.grad.abs()) > 0
