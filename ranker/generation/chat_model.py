"""The chat model as torch runs it: a causal language model, a head that scores replies, one for emotions.

Needs the extra `train`. A row holds a conversation and, where replies are compared, further replies to the
same context: branches, which see the context but not each other, so that the context is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

from ranker.errors import IntegrityError, MismatchError
from ranker.generation.chat_adapter import LORA_A, LORA_B, Adapter
from ranker.generation.decoding import LogProbs

_MAIN, _PADDING = 0, -1


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids of a conversation, and of replies that branch off after its first `fork` tokens."""

    main: Sequence[int]
    branches: Sequence[Sequence[int]] = ()
    fork: int = 0

    @property
    def tokens(self) -> int:
        return len(self.main) + sum(map(len, self.branches))

    def branch_start(self, number: int) -> int:
        """The place of the first token of a branch within the row."""
        return len(self.main) + sum(map(len, self.branches[:number]))


def packed(rows: Sequence[Row]) -> dict[str, Tensor]:
    """`ids`, `positions` (both (rows, tokens)) and `mask` (rows, 1, tokens, tokens; True: is seen)."""
    width = max(row.tokens for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions, branch = torch.zeros_like(ids), torch.full_like(ids, _PADDING)
    sight = torch.zeros_like(ids)  # so many tokens of the main conversation are seen, if they come before
    for at, row in enumerate(rows):
        length = len(row.main)
        ids[at, :length] = torch.tensor(list(row.main))
        positions[at, :length] = torch.arange(length)
        branch[at, :length], sight[at, :length] = _MAIN, length
        for number, reply in enumerate(row.branches):
            start = row.branch_start(number)
            span = slice(start, start + len(reply))
            ids[at, span] = torch.tensor(list(reply))
            positions[at, span] = torch.arange(row.fork, row.fork + len(reply))
            branch[at, span], sight[at, span] = number + 1, row.fork
    order = torch.arange(width)
    before = order[:, None] >= order
    same = branch[:, :, None] == branch[:, None, :]
    context = (branch[:, None, :] == _MAIN) & (order[None, None, :] < sight[:, :, None])
    return {"ids": ids, "positions": positions, "mask": (before & (same | context))[:, None]}


class ChatModel(nn.Module):
    """A causal language model of transformers with two linear heads on its last hidden state."""

    def __init__(self, lm: Any, emotions: int) -> None:
        super().__init__()
        self.lm = lm
        width = int(lm.config.hidden_size)
        self.selection = nn.Linear(width, 1)
        self.emotion = nn.Linear(width, emotions)
        for head in (self.selection, self.emotion):
            nn.init.normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)

    def hidden(self, batch: Mapping[str, Tensor]) -> Tensor:
        """(rows, tokens, width) of a `packed` batch."""
        found: Tensor = self.lm.base_model(
            input_ids=batch["ids"],
            attention_mask=batch["mask"],
            position_ids=batch["positions"],
            use_cache=False,
        ).last_hidden_state
        return found

    def scores(self, hidden: Tensor) -> Tensor:
        """(n, vocabulary) of the next token, from (n, width); float32."""
        found: Tensor = self.lm.get_output_embeddings()(hidden)
        return found.float()

    def selection_scores(self, hidden: Tensor) -> Tensor:
        """(n,) from the hidden states (n, width) of the last tokens of replies."""
        found: Tensor = self.selection(hidden.to(self.selection.weight.dtype))
        return found.float()[..., 0]

    def emotion_scores(self, hidden: Tensor) -> Tensor:
        """(n, emotions) from the hidden states (n, width) of the last tokens of prompts."""
        found: Tensor = self.emotion(hidden.to(self.emotion.weight.dtype))
        return found.float()

    @torch.no_grad()
    def take(self, adapter: Adapter) -> None:
        """Add the low-rank updates into the weights and set the heads. Raises MismatchError where the base is
        another, IntegrityError."""
        tensors = adapter.tensors
        for name in adapter.modules:
            try:
                weight = self.lm.get_submodule(name).get_parameter("weight")
            except AttributeError:
                raise MismatchError(f"the base model has no {name}, which the adapter updates") from None
            down, up = tensors[name + LORA_A].float(), tensors[name + LORA_B].float()
            if (up.shape[0], down.shape[1]) != weight.shape or up.shape[1] != down.shape[0]:
                raise MismatchError(f"the adapter's update of {name} does not fit the base model")
            # In float32: of the update, bf16 would keep too little.
            weight.copy_(weight.float().addmm_(up, down, alpha=adapter.card.scale))
        for head_name, head in (("selection", self.selection), ("emotion", self.emotion)):
            for part in ("weight", "bias"):
                value, own = tensors[f"{head_name}.{part}"], head.get_parameter(part)
                if value.shape != own.shape:
                    raise IntegrityError(f"the adapter's {head_name} head does not fit its card")
                own.copy_(value)


def best_dtype() -> torch.dtype:
    """bfloat16 where the processor computes in it: half the memory to read for each token; else float32."""
    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def load_lm(folder: Path, dtype: torch.dtype) -> Any:
    """The causal language model of a transformers folder, for use. Raises MismatchError."""
    try:
        with _without_bar():
            model = AutoModelForCausalLM.from_pretrained(
                str(folder),
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                attn_implementation="sdpa",
            )
    except Exception as error:  # transformers raises what it likes for a folder that it cannot use
        reason = str(error).partition("\n")[0]
        raise MismatchError(f"the model in {folder} cannot be loaded ({reason})") from error
    model.train(False)
    return model.requires_grad_(False)


@contextmanager
def _without_bar() -> Iterator[None]:
    """The library's progress bar would stand in the middle of an answer."""
    talk: Any = logging  # its functions have no annotations
    shows = talk.is_progress_bar_enabled()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        if shows:
            talk.enable_progress_bar()


class Continuation:
    """Goes on with replies to one prompt, token by token: a `decoding.Step` with a cache.

    The token that a reply starts from is the last one of the prompt.
    """

    def __init__(self, model: ChatModel, prompt: Sequence[int]) -> None:
        self._model = model
        self._unread = list(prompt[:-1])
        self._cache = DynamicCache()

    @torch.inference_mode()
    def __call__(self, parents: Sequence[int], tokens: Sequence[int]) -> LogProbs:
        ids = torch.tensor([[*self._unread, token] for token in tokens])
        if self._unread:
            self._unread = []
        elif list(parents) != [0]:
            order: Any = torch.tensor(list(parents))
            self._cache.reorder_cache(order)
        hidden = self._model.lm.base_model(
            input_ids=ids, past_key_values=self._cache, use_cache=True
        ).last_hidden_state[:, -1]
        found: LogProbs = self._model.scores(hidden).log_softmax(dim=-1).numpy()
        return found
