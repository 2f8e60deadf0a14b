"""Building, freezing, adapting and merging the sentence-transformers models that are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from ranker.errors import IntegrityError, NotFoundError, TrainingError
from ranker.labels import Prepender
from ranker.training.labels import add_label_tokens
from ranker.training.settings import ModelSettings
from ranker.training.transformer import transformer_towers

Texts = Callable[[], Iterable[str]]
"""Gives the texts of all stages, from which an architecture without a vocabulary of its own makes one."""


def build_model(
    settings: ModelSettings, start: Path | None, texts: Texts, prepender: Prepender | None = None
) -> SentenceTransformer:
    """The model a stage starts with: `start`, the result of an earlier stage, else a new one; with a token
    for each label that may be prepended."""
    if start is not None:
        model = load_model(start)
    elif settings.architecture == "transformer":
        model = assemble(transformer_towers(settings, texts()), settings)
    else:
        towers = [_pretrained(settings) for _ in range(2 if settings.towers == "separate" else 1)]
        model = assemble(towers, settings)
    if prepender is not None:
        add_label_tokens(model, prepender, settings.longest)
    return model


def assemble(towers: Sequence[Transformer], settings: ModelSettings) -> SentenceTransformer:
    """One or two Transformer modules, pooled, given heads where asked for, and normalised."""
    width = int(towers[0].get_embedding_dimension())
    sides: list[list[Module]] = [
        [tower, Pooling(width, pooling_mode=settings.pooling), *_head(width, settings)]
        for tower in (towers[0], towers[-1])
    ]
    if settings.is_one_tower:
        return SentenceTransformer(modules=[*sides[0], Normalize()], device="cpu")
    router = Router.for_query_document(query_modules=sides[0], document_modules=sides[1])
    return SentenceTransformer(modules=[router, Normalize()], device="cpu")


def load_model(folder: Path) -> SentenceTransformer:
    """A saved sentence-transformers folder, in float32."""
    if not (folder / "modules.json").is_file():
        raise NotFoundError(f"{folder} is not a sentence-transformers model (it has no modules.json)")
    return SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})


def prepare(model: SentenceTransformer, settings: ModelSettings) -> None:
    """Freeze and adapt in place: what stays trainable is what a stage changes."""
    for core in cores(model):
        if settings.lora_rank:
            _add_lora(core, settings)
        elif settings.frozen_embeddings:
            core.get_submodule("embeddings").requires_grad_(False)
        for name, layer in core.named_modules():
            number = name.removeprefix("encoder.layer.")
            if name != number and number.isdigit() and int(number) < settings.frozen_layers:
                layer.requires_grad_(False)
        if (pooler := getattr(core, "pooler", None)) is not None:
            pooler.requires_grad_(False)  # not part of what pooling reads


def merged(
    model: SentenceTransformer,
    settings: ModelSettings,
    start: Path | None,
    prepender: Prepender | None = None,
) -> SentenceTransformer:
    """The model with its low-rank updates added into the weights; the model itself where it has none."""
    if not settings.lora_rank:
        return model
    from peft.tuners.lora import LoraLayer

    plain = build_model(settings, start, lambda: (), prepender)
    plain_cores = list(cores(plain))
    with torch.no_grad():
        for core, target in zip(cores(model), plain_cores, strict=True):
            for name, layer in core.named_modules():
                if isinstance(layer, LoraLayer):
                    target.get_submodule(name).get_parameter("weight").add_(layer.get_delta_weight("default"))
    _copy_heads(model, plain)
    return plain


def cores(model: SentenceTransformer) -> Iterator[Any]:
    """The transformers models inside, one per tower."""
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, Transformer) and id(module) not in seen:
            seen.add(id(module))
            yield module.auto_model


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that training changes, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def save_trainable(model: nn.Module, path: Path) -> None:
    """Write the weights that training changes: with `build_model` and `prepare`, all that is needed again.

    Not `save_pretrained`: sentence-transformers 6.2 cannot load adapters inside a Router, and frozen weights
    need not be written every few minutes.
    """
    save_file({name: weight.detach().contiguous() for name, weight in trainable(model).items()}, str(path))


def load_trainable(model: nn.Module, path: Path) -> None:
    """Put weights written by `save_trainable` back. Raises IntegrityError where they are another model's."""
    saved, own = load_file(str(path)), trainable(model)
    if {name: weight.shape for name, weight in saved.items()} != {name: w.shape for name, w in own.items()}:
        raise IntegrityError(f"{path} holds the weights of another model")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(saved[name])


def _pretrained(settings: ModelSettings) -> Transformer:
    dropout = {"hidden_dropout_prob": settings.dropout, "attention_probs_dropout_prob": settings.dropout}
    try:
        module: Transformer = Transformer(
            settings.base, model_kwargs={"dtype": torch.float32}, config_kwargs=dropout, max_seq_length=None
        )
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise TrainingError(
            f"cannot load the base model {settings.base!r}: {reason}", fix="Name a folder: --base"
        ) from error
    module.max_seq_length = settings.max_tokens
    return module


def _head(width: int, settings: ModelSettings) -> list[Module]:
    if settings.heads == "none":
        return []
    head = Dense(width, width, bias=True, activation_function=nn.Identity())
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(width))
        head.linear.bias.zero_()
    return [head]


def _add_lora(core: Any, settings: ModelSettings) -> None:
    from peft import LoraConfig

    layers = [
        name
        for name, layer in core.named_modules()
        if isinstance(layer, nn.Linear) and not name.startswith("pooler")
    ]
    core.add_adapter(
        LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha or 2 * settings.lora_rank,
            lora_dropout=settings.dropout,
            target_modules=layers,
        )
    )


def _copy_heads(model: SentenceTransformer, plain: SentenceTransformer) -> None:
    heads = [module for module in model.modules() if isinstance(module, Dense)]
    targets = [module for module in plain.modules() if isinstance(module, Dense)]
    for head, target in zip(heads, targets, strict=True):
        target.load_state_dict(head.state_dict())
