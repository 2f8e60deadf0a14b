"""Published figures to compare with, on EmpatheticDialogues: retrieval (Rashkin et al. 2019, Table 1), and
generation."""

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


@dataclass(frozen=True, slots=True)
class PublishedGenerator:
    """Perplexity is per token of each paper's own tokenizer: it compares only roughly. `bleu` is AVG BLEU in
    per cent; `distinct` (one, two) and `similarity` are within 0..1, the latter by an encoder of its own."""

    model: str
    perplexity: float
    bleu: float | None = None
    distinct: tuple[float, float] | None = None
    similarity: float | None = None


GENERATORS = (
    PublishedGenerator("Rashkin 2019, fine-tuned", 21.24, bleu=6.27),
    PublishedGenerator("CAiRE", 13.32, bleu=7.03),
    PublishedGenerator("MEED2", 17.2, distinct=(0.036, 0.140), similarity=0.299),
    PublishedGenerator("RoBERTa-GPT2", 13.57, distinct=(0.0204, 0.1168)),
    PublishedGenerator("dodecaDialogue", 11.4, bleu=8.4),
)
"""Rashkin et al. 2019, Lin et al. 2020, Xie and Pu 2021, Liu et al. 2021, Shuster et al. 2020."""
