"""How pairs become batches: no equal responses together, padded to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

TASKS = {"context": "query", "response": "document"}
"""The routes of sentence-transformers' two-tower Router; negatives go the responses' way."""


class DistinctResponses(NoDuplicatesBatchSampler):
    """Shuffled batches in which no response, nor negative, has the key of another."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dataset.select_columns([name for name in dataset.column_names if name.endswith("_key")]),
            batch_size=batch_size,
            drop_last=drop_last,
            valid_label_columns=valid_label_columns,
            generator=generator,
            seed=seed,
        )


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, both (rows, longest)."""
    width = max(len(row) for row in rows)
    return {
        "input_ids": torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
    }


@dataclass
class PairCollator:
    """Token-id columns as the model's inputs; the label of a row is its number in the dataset."""

    pad_id: int
    valid_label_columns: list[str] = field(default_factory=list)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {"label": torch.tensor([row["row"] for row in features])}
        columns = [name for name in features[0] if name in TASKS or _is_negative(name)]
        for column in columns:
            padded = pad([row[column] for row in features], self.pad_id)
            batch |= {f"{column}_{name}": tensor for name, tensor in padded.items()}
            batch[f"{column}_task"] = TASKS.get(column, "document")
        return batch


def _is_negative(column: str) -> bool:
    return column.startswith("negative_") and not column.endswith("_key")
