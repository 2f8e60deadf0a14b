"""The paper's Transformer with encoder and decoder, as torch runs it. Needs the extra `train`.

Layer norms come before the sublayers, which trains from scratch without accidents; positions are sinusoids;
one matrix embeds the words of contexts and replies and gives the scores of the next word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, PegasusConfig
from transformers.models.pegasus.modeling_pegasus import PegasusModel

from ranker.errors import IntegrityError
from ranker.generation.decoding import LogProbs
from ranker.generation.seq2seq import LONGEST, Seq2SeqShape

_NO_TARGET = -100


class Seq2Seq(nn.Module):
    """The network and its loss."""

    def __init__(self, shape: Seq2SeqShape, *, pad: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape, self.pad = shape, pad
        self.core = PegasusModel(
            PegasusConfig(
                vocab_size=shape.vocabulary,
                max_position_embeddings=LONGEST,
                encoder_layers=shape.layers,
                decoder_layers=shape.layers,
                encoder_attention_heads=shape.heads,
                decoder_attention_heads=shape.heads,
                encoder_ffn_dim=shape.feed_forward,
                decoder_ffn_dim=shape.feed_forward,
                d_model=shape.width,
                dropout=dropout,
                activation_function="relu",
                scale_embedding=True,
                # Words as loud as positions, and layers that pass on what they get: with BERT's 0.02, a
                # network this narrow takes long to see its context at all.
                init_std=shape.width**-0.5,
                pad_token_id=pad,
            )
        )
        # On a processor, torch's fused attention has a slow way back: this trains a quarter faster.
        self.core.set_attn_implementation("eager")

    @property
    def embeddings(self) -> Tensor:
        """(vocabulary, width), of words in contexts and replies and of the scores."""
        weight: Tensor = self.core.shared.weight
        return weight

    def batch(self, contexts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """What `token_losses` takes: ids (rows, tokens), padded. `replies` have START and the end."""
        return {
            "contexts": _padded(contexts, self.pad),
            "mask": _padded([[1] * len(row) for row in contexts], 0),
            "replies": _padded([row[:-1] for row in replies], self.pad),
            "targets": _padded([row[1:] for row in replies], _NO_TARGET),
        }

    def token_losses(self, batch: Mapping[str, Tensor]) -> Tensor:
        """(target tokens,): the negative log probability of each, row by row, without padding."""
        hidden = self.core(
            input_ids=batch["contexts"],
            attention_mask=batch["mask"],
            decoder_input_ids=batch["replies"],
            use_cache=False,
        ).last_hidden_state
        real = batch["targets"] != _NO_TARGET
        # Scores are the dearest part: none for padding.
        scores = nn.functional.linear(hidden[real], self.embeddings)
        return nn.functional.cross_entropy(scores.float(), batch["targets"][real], reduction="none")

    def save(self, path: str) -> None:
        save_file({name: weight.detach().contiguous() for name, weight in self._learned().items()}, path)

    def load(self, data: bytes, *, source: str) -> None:
        """Take the weights from a safetensors file's bytes. Raises IntegrityError where they do not fit."""
        try:
            found = load(data)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{source} is not a readable safetensors file ({error})") from error
        own = self._learned()
        if {name: weight.shape for name, weight in found.items()} != {n: w.shape for n, w in own.items()}:
            raise IntegrityError(f"{source} holds the weights of another network than its settings describe")
        with torch.no_grad():
            for name, weight in own.items():
                weight.copy_(found[name])

    def _learned(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}


class Continuation:
    """Goes on with replies to one context, token by token: a `decoding.Step` with a cache."""

    def __init__(self, model: Seq2Seq, context: Sequence[int]) -> None:
        self._model = model
        with torch.inference_mode():
            self._context = model.core.encoder(input_ids=torch.tensor([list(context)])).last_hidden_state
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._rows = 1

    @torch.inference_mode()
    def __call__(self, parents: Sequence[int], tokens: Sequence[int]) -> LogProbs:
        order: Any = torch.tensor(list(parents))
        self._cache.self_attention_cache.reorder_cache(order)
        if len(parents) != self._rows:  # all rows see the same context: only their number matters
            self._cache.cross_attention_cache.reorder_cache(order)
            self._rows = len(parents)
        hidden = self._model.core.decoder(
            input_ids=torch.tensor(list(tokens))[:, None],
            encoder_hidden_states=self._context.expand(len(tokens), -1, -1),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        scores = nn.functional.linear(hidden, self._model.embeddings)
        found: LogProbs = scores.float().log_softmax(dim=-1).numpy()
        return found


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])
