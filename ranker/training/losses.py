"""Objectives over a batch's score matrix: row i is context i, column i its own response, then negatives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from torch import Tensor, nn
from torch.nn import functional


def ranking_loss(scores: Tensor, *, both_directions: bool) -> Tensor:
    """Cross-entropy of picking each context's own response among all columns, and each response's context.

    `scores` (rows, columns ≥ rows), already scaled. Scalar.
    """
    gold = torch.arange(len(scores), device=scores.device)
    loss = functional.cross_entropy(scores, gold)
    if both_directions:
        loss = (loss + functional.cross_entropy(scores[:, : len(scores)].T, gold)) / 2
    return loss


def divergence(student: Tensor, teacher: Tensor, *, both_directions: bool) -> Tensor:
    """KL(teacher ‖ student) of the softmax over each row, and over each context column-wise, mean per row.

    Both (rows, columns ≥ rows), already scaled. Scalar.
    """
    loss = _kl_rows(student, teacher)
    if both_directions:
        square = len(student)
        loss = (loss + _kl_rows(student[:, :square].T, teacher[:, :square].T)) / 2
    return loss


def _kl_rows(student: Tensor, teacher: Tensor) -> Tensor:
    return functional.kl_div(
        functional.log_softmax(student, dim=1),
        functional.log_softmax(teacher, dim=1),
        reduction="batchmean",
        log_target=True,
    )


def batch_precision(contexts: Tensor, responses: Tensor) -> float:
    """Share of contexts whose own response scores best among the batch's."""
    with torch.no_grad():
        scores = functional.normalize(contexts, dim=1) @ functional.normalize(responses, dim=1).T
        best = scores.argmax(dim=1)
        return float((best == torch.arange(len(best), device=best.device)).float().mean())


class LengthSorted:
    """Sorts each column of a batch by length before it is cut into micro-batches, and the vectors back after.

    sentence-transformers cuts a batch as it comes, so that nearly every micro-batch is as wide as the batch's
    longest text: on EmpatheticDialogues that is 1.7 times the tokens. The loss is the same: only the order of
    rows differs.
    """

    _places: list[Tensor]

    def sorted_columns(self, columns: Iterable[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """The columns with their rows shortest first; remembers each row's place for `restored`."""
        self._places = []
        found = []
        for column in columns:
            order = column["attention_mask"].sum(dim=1).argsort(stable=True)
            self._places.append(order.argsort())
            found.append(
                {name: value[order] if isinstance(value, Tensor) else value for name, value in column.items()}
            )
        return found

    def restored(self, vectors: list[list[Tensor]]) -> list[list[Tensor]]:
        """The vectors of each column in the batch's own order, as one micro-batch."""
        return [[torch.cat(parts)[places]] for parts, places in zip(vectors, self._places, strict=True)]


class MicroBatched(LengthSorted, CachedLossMixin):
    """A loss over a batch that is embedded in micro-batches: by sentence-transformers' gradient cache, or
    with all graphs kept, which takes more memory and saves the second embedding (a quarter of a step)."""

    uses_gradient_cache: bool

    def over_batch(self, columns: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        ordered = self.sorted_columns(columns)
        if self.uses_gradient_cache or not torch.is_grad_enabled():
            return self.forward_cached(ordered, labels)
        vectors = [
            [part for part, _ in self.embed_minibatch_iter(column, with_grad=True, copy_random_state=False)]
            for column in ordered
        ]
        return self.calculate_loss(vectors, labels)


class RankingLoss(MicroBatched, CachedMultipleNegativesRankingLoss):
    """sentence-transformers' cached in-batch softmax, which also notes P@1 in the batch."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        scale: float,
        learned_scale: bool,
        both_directions: bool,
        micro_batch: int,
        gradient_cache: bool = True,
    ) -> None:
        super().__init__(
            model,
            scale=scale,
            mini_batch_size=micro_batch,
            directions=("query_to_doc", "doc_to_query") if both_directions else ("query_to_doc",),
            partition_mode="per_direction",
        )
        self.uses_gradient_cache = gradient_cache
        self.batch_loss = self.batch_precision = 0.0
        if learned_scale:
            setattr(self.loss, "scale", nn.Parameter(torch.tensor(float(scale))))  # noqa: B010 - declared a float

    @property
    def learned_scale(self) -> nn.Parameter | None:
        return dict(self.loss.named_parameters(recurse=False)).get("scale")

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        ordered = [vectors for (vectors,) in self.restored(reps)]
        self.batch_precision = batch_precision(ordered[0], ordered[1])
        if not with_backward:
            whole: Tensor = super().calculate_loss([[vectors] for vectors in ordered], labels)
            self.batch_loss = float(whole.detach())
            return whole
        # The parent goes back chunk by chunk, so it gets leaves; their gradients then pass the sorting once.
        leaves = [vectors.detach().requires_grad_() for vectors in ordered]
        loss: Tensor = super().calculate_loss([[leaf] for leaf in leaves], labels, with_backward=True)
        torch.autograd.backward(ordered, [leaf.grad for leaf in leaves])
        self.batch_loss = float(loss)
        return loss

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        return self.over_batch(sentence_features, labels)


class DistillationLoss(MicroBatched, nn.Module):
    """The teacher's scores over the batch, and a share of the true responses.

    Own code because sentence-transformers' distillation losses take one row of teacher scores per context,
    made beforehand; here the teacher scores whatever meets in the batch, from its precomputed vectors.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        teacher_contexts: Tensor,
        teacher_responses: Tensor,
        *,
        scale: float,
        teacher_scale: float,
        label_weight: float,
        both_directions: bool,
        micro_batch: int,
        gradient_cache: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.uses_gradient_cache = gradient_cache
        self.mini_batch_size = micro_batch
        self.scale = scale
        self.teacher_scale = teacher_scale
        self.label_weight = label_weight
        self.both_directions = both_directions
        self.batch_loss = self.batch_precision = 0.0
        # Neither parameters nor saved: (pairs, teacher dim) each, row = the pair's number.
        self._contexts, self._responses = teacher_contexts, teacher_responses

    @property
    def learned_scale(self) -> nn.Parameter | None:
        return None

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        if labels is None:
            raise ValueError("the labels name the pairs whose teacher vectors to take")
        (contexts,), (responses,) = (
            [functional.normalize(vectors.float(), dim=1) for vectors in column]
            for column in self.restored(reps)
        )
        student = self.scale * contexts @ responses.T
        rows = labels.cpu()
        taught = self._contexts[rows].float() @ self._responses[rows].float().T
        teacher = self.teacher_scale * taught.to(student.device)
        self.batch_precision = batch_precision(contexts, responses)
        loss = divergence(student, teacher, both_directions=self.both_directions)
        if self.label_weight:
            loss = loss + self.label_weight * ranking_loss(student, both_directions=self.both_directions)
        self.batch_loss = float(loss.detach())
        if with_backward:
            torch.autograd.backward(loss)
            loss = loss.detach()
        return loss

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        return self.over_batch(sentence_features, labels)

    def get_config_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "teacher_scale": self.teacher_scale,
            "label_weight": self.label_weight,
            "both_directions": self.both_directions,
            "mini_batch_size": self.mini_batch_size,
        }
