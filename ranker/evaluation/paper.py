"""Published figures to compare with: retrieval on EmpatheticDialogues test (Rashkin et al. 2019, Table 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """`p_at_1` in per cent: P@1,100 on the test split."""

    model: str
    p_at_1: float


ROWS = (
    PublishedRow("Transformer, pretrained", 43.25),
    PublishedRow("Transformer, fine-tuned", 56.90),
    PublishedRow("Transformer, EmoPrepend-1", 56.31),
    PublishedRow("Transformer, TopicPrepend-1", 56.38),
    PublishedRow("BERT, pretrained", 49.94),
    PublishedRow("BERT, fine-tuned", 65.92),
    PublishedRow("BERT, EmoPrepend-1", 66.04),
    PublishedRow("BERT, TopicPrepend-1", 65.96),
)

AVG_BLEU = (4.10, 6.21)
"""Lowest and highest AVG BLEU among these."""
