"""Labels before the texts of a model in training: which ones, and tokens for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from tokenizers import AddedToken

from ranker.errors import ConfigError
from ranker.home import Home
from ranker.labels import Prepend, Prepender, has_prepender, open_prepender, read_prepender
from ranker.training.settings import ModelSettings


def find_prepender(settings: ModelSettings, start: Path | None, home: Home | None) -> Prepender | None:
    """What the settings ask for; the labeler of `start`, a model to go on from, where that has one.

    Raises ConfigError where `start` was trained with other labels than the settings ask for.
    """
    wanted = Prepend.parse(settings.prepend) if settings.prepend else None
    if start is None or not has_prepender(start):
        return open_prepender(wanted, home) if wanted else None
    prepender = read_prepender(start)
    if wanted is None or str(wanted) != str(prepender.setting):
        raise ConfigError(
            f"{start} was trained with {prepender.setting} prepended",
            fix=f"Add --prepend {prepender.setting}",
        )
    return prepender


def add_label_tokens(model: SentenceTransformer, prepender: Prepender, longest: int) -> None:
    """Give every tokenizer of the model a token for each label, and its embeddings a row.

    A row starts as the mean of the rows of the label's word pieces, so that the model knows what the label
    means though it never saw the token; as a random one where the tokenizer does not know the word. Tokens
    that are there already stay as they are.

    Raises ConfigError where the model cannot read inputs of `longest` tokens.
    """
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, Transformer) and id(module) not in seen:
            seen.add(id(module))
            _add_to_tower(module.tokenizer, module.auto_model, prepender, longest)


def _add_to_tower(tokenizer: Any, core: Any, prepender: Prepender, longest: int) -> None:
    positions = getattr(core.config, "max_position_embeddings", longest)
    if longest > positions:
        raise ConfigError(
            f"texts and prepended labels take {longest} tokens, the model reads {positions}",
            fix="Lower model.max_tokens",
        )
    vocabulary = tokenizer.get_vocab()
    names = {token: name for token, name in prepender.tokens.items() if token not in vocabulary}
    pieces = {token: tokenizer.encode(name, add_special_tokens=False) for token, name in names.items()}
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in names])
    table = core.get_input_embeddings().weight
    spread = float(table.detach().std())
    if len(tokenizer) > len(table):
        table = core.resize_token_embeddings(len(tokenizer), mean_resizing=False).weight
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for token in names:
            row = table[tokenizer.convert_tokens_to_ids(token)]
            known = [piece for piece in pieces[token] if piece != tokenizer.unk_token_id]
            if known:
                row.copy_(table[known].mean(dim=0))
            else:
                row.copy_(spread * torch.randn(row.shape, generator=generator))
