"""CAiRE's three objectives (Lin et al. 2020) as functions of scores: L = alpha * L_LM + L_S + L_E.

Each is a mean over its rows, and 0 without any.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def language_modelling_loss(scores: Tensor, tokens: Tensor) -> Tensor:
    """Of the scores (n, vocabulary) for the next token, and the tokens (n,) that came."""
    return _mean_cross_entropy(scores, tokens)


def selection_loss(scores: Tensor) -> Tensor:
    """Of the scores (rows, replies) of a true reply, in the first column, and distractors beside it."""
    return _mean_cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def emotion_loss(scores: Tensor, emotions: Tensor) -> Tensor:
    """Of the scores (n, emotions) and the true ones (n,)."""
    return _mean_cross_entropy(scores, emotions)


def combined_loss(modelling: Tensor, selection: Tensor, emotion: Tensor, *, alpha: float) -> Tensor:
    return alpha * modelling + selection + emotion


def _mean_cross_entropy(scores: Tensor, truths: Tensor) -> Tensor:
    return cross_entropy(scores, truths) if len(truths) else scores.sum()
