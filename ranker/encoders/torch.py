"""Any sentence-transformers model as an encoder, for measuring and comparing. Needs the extra `train`.

Imports torch: load it through `load_encoder` or from training code only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor, nn

from ranker.encoders.layout import CONTEXT_WINDOW, LAYOUT_VERSION, MAX_TOKENS, LayoutSettings, TokenLayout
from ranker.errors import ConfigError, DownloadError
from ranker.labels import Prepender, has_prepender, read_prepender
from ranker.types import Calibration, Context, Progress, Vectors

T = TypeVar("T")

_BATCH_SIZE = 32


class Tower(nn.Module):
    """One side of a model from token ids to unit vectors: what is exported, and what this encoder runs."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(modules)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(rows, tokens) twice -> (rows, dim)."""
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        for step in self.steps:
            features = step(features)
        return nn.functional.normalize(features["sentence_embedding"], dim=-1)


def towers(model: SentenceTransformer) -> tuple[Tower, Tower]:
    """The context and the candidate tower; one and the same object where the model has no `Router`."""
    first, *rest = model.children()
    if not isinstance(first, Router):
        tower = Tower([first, *rest])
        return tower, tower
    routes = first.sub_modules
    if not {"query", "document"} <= set(routes):
        raise ConfigError(f"the model's routes are {', '.join(routes)}, not query and document")
    sides = (routes["query"].children(), routes["document"].children())
    return Tower([*sides[0], *rest]), Tower([*sides[1], *rest])


def layout_of(
    model: SentenceTransformer,
    *,
    max_tokens: int = MAX_TOKENS,
    context_window: int = CONTEXT_WINDOW,
    prepender: Prepender | None = None,
) -> TokenLayout:
    """The layout of a model's tokenizer, which stays as it is. Raises ConfigError where it cannot be used."""
    tokenizers = [model.tokenizer]
    first = next(iter(model.children()))
    if isinstance(first, Router):
        tokenizers = [next(iter(route.children())).tokenizer for route in first.sub_modules.values()]
    tokenizer = tokenizers[0]
    backends = {_tokenizer_json(one) for one in tokenizers}
    if len(backends) > 1:
        raise ConfigError("the model's two towers have different tokenizers: an encoder has one")
    if None in (tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token):
        raise ConfigError("the model's tokenizer lacks a token of [CLS], [SEP] and [PAD]")
    settings = LayoutSettings(
        cls_token=tokenizer.cls_token,
        sep_token=tokenizer.sep_token,
        pad_token=tokenizer.pad_token,
        max_tokens=max_tokens,
        context_window=context_window,
    )
    return TokenLayout(backends.pop(), settings, source="the model's tokenizer", prepender=prepender)


def _tokenizer_json(tokenizer: Any) -> bytes:
    """A transformers tokenizer as the `tokenizers` library stores it, without what one call left in it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError("the model's tokenizer is not a fast one (no tokenizer.json)")
    table = json.loads(backend.to_str())
    # Truncation and padding are switched on and off by each use; TokenLayout does both itself.
    return json.dumps({**table, "truncation": None, "padding": None}, ensure_ascii=False).encode()


class TorchEncoder:
    """A sentence-transformers model with the same token layout as the exported one. Deterministic."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        max_tokens: int = MAX_TOKENS,
        prepender: Prepender | None = None,
    ) -> None:
        """Works on the model itself, not on a copy; the fingerprint is that of its first use."""
        self._model = model
        self._layout = layout_of(
            model, max_tokens=min(max_tokens, model.max_seq_length or max_tokens), prepender=prepender
        )
        self._context_tower, self._candidate_tower = towers(model)

    @classmethod
    def load(cls, name: str) -> TorchEncoder:
        """From a folder, with what it says of prepended labels, or a hub id. Raises DownloadError where
        neither holds a model that can be loaded."""
        prepender = read_prepender(Path(name)) if has_prepender(Path(name)) else None
        try:
            model = SentenceTransformer(name, device="cpu", model_kwargs={"dtype": torch.float32})
            return cls(model, prepender=prepender)
        except (OSError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise DownloadError(
                f"cannot load the model {name!r} ({reason})",
                fix="Check its name and the connection, or give the folder of a model",
            ) from error

    @property
    def dim(self) -> int:
        return int(self._model.get_embedding_dimension() or 0)

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights, tokenizer, layout and prepend setting."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(name.encode() + tensor.detach().float().cpu().contiguous().numpy().tobytes())
        digest.update(self._layout.tokenizer_json)
        digest.update(json.dumps([LAYOUT_VERSION, asdict(self._layout.settings)]).encode())
        if (prepender := self._layout.prepender) is not None:
            digest.update(json.dumps(asdict(prepender.setting), sort_keys=True).encode())
        return digest.hexdigest()[:16]

    @property
    def calibration(self) -> Calibration | None:
        return None

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        return self._encode(contexts, self._layout.context, self._context_tower, progress)

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        return self._encode(texts, self._layout.candidate, self._candidate_tower, progress)

    def _encode(
        self, given: Sequence[T], lay_out: Callable[[T], list[int]], tower: Tower, progress: Progress | None
    ) -> Vectors:
        rows = [lay_out(one) for one in given]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]), reverse=True)
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        was_training = self._model.training
        self._model.eval()
        try:
            with torch.inference_mode():
                for start in range(0, len(order), _BATCH_SIZE):
                    places = order[start : start + _BATCH_SIZE]
                    ids, mask = self._padded([rows[place] for place in places])
                    vectors[places] = tower(ids, mask).float().cpu().numpy()
                    if progress is not None:
                        progress(start + len(places), len(rows))
        finally:
            self._model.train(was_training)
        return vectors

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids and mask, both (rows, tokens), of rows sorted longest first."""
        ids = torch.full((len(rows), len(rows[0])), self._layout.pad_id)
        mask = torch.zeros_like(ids)
        for row, values in enumerate(rows):
            ids[row, : len(values)] = torch.tensor(values)
            mask[row, : len(values)] = 1
        return ids.to(self._model.device), mask.to(self._model.device)
