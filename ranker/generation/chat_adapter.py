"""What training adds to a base: low-rank updates of its matrices, and two heads on its last hidden state.

The folder of a `chat` generator holds, beside the manifest (see `folder`)

    adapter.json         this card: the base it fits, how prompts are made, what the heads mean
    adapter.safetensors  float16: <module>.lora_A (rank, in), <module>.lora_B (out, rank),
                         selection.weight (1, width), selection.bias (1,), emotion.weight (labels, width),
                         emotion.bias (labels,)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ranker.config import from_table
from ranker.errors import ConfigError, IntegrityError, MismatchError
from ranker.generation.chat_base import FETCH, BaseShape
from ranker.generation.chat_prompt import PromptSettings
from ranker.generation.folder import GeneratorFolder
from ranker.storage import write_json

if TYPE_CHECKING:
    from torch import Tensor

CARD, WEIGHTS = "adapter.json", "adapter.safetensors"
LORA_A, LORA_B = ".lora_A", ".lora_B"
HEADS = ("selection.weight", "selection.bias", "emotion.weight", "emotion.bias")


@dataclass(frozen=True, slots=True)
class AdapterCard:
    """All of `adapter.json`. An update of a matrix is `scale` * B @ A."""

    base: str
    """The hub id of the base."""
    shape: BaseShape
    base_sha256: tuple[str, ...]
    """Of the weight files that it was trained on; others of the same shape do as well."""
    scale: float
    prompt: PromptSettings
    emotions: tuple[str, ...]
    """What the emotion head tells apart, in its order."""

    def save(self, folder: Path) -> None:
        write_json(folder / CARD, asdict(self))

    def require(self, shape: BaseShape, where: str) -> None:
        """Raises MismatchError where the base at hand is of another size."""
        if shape != self.shape:
            raise MismatchError(
                f"the base model in {where} is {shape}, but the adapter is for {self.shape} ({self.base})",
                fix=f"Run: {FETCH}, or train an adapter for this base: ranker train-generator chat",
            )


@dataclass(frozen=True, slots=True)
class Adapter:
    card: AdapterCard
    tensors: Mapping[str, Tensor]

    @property
    def modules(self) -> list[str]:
        """Names of the matrices that are updated."""
        return sorted(name.removesuffix(LORA_A) for name in self.tensors if name.endswith(LORA_A))


def read_card(folder: GeneratorFolder) -> AdapterCard:
    """Raises IntegrityError."""
    path = folder.path / CARD
    try:
        return from_table(AdapterCard, json.loads(folder.read(CARD)), source=str(path))
    except (ConfigError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{path} is not the card of an adapter ({error})") from error


def read_adapter(folder: GeneratorFolder) -> Adapter:
    """Card and weights, hashes checked first. Raises IntegrityError."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    card = read_card(folder)
    path = folder.path / WEIGHTS
    try:
        tensors = load(folder.read(WEIGHTS))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} is not a readable safetensors file ({error})") from error
    missing = [name for name in HEADS if name not in tensors]
    missing += [
        name.removesuffix(LORA_A) + LORA_B
        for name in tensors
        if name.endswith(LORA_A) and name.removesuffix(LORA_A) + LORA_B not in tensors
    ]
    if missing:
        raise IntegrityError(f"{path} lacks {missing[0]}")
    return Adapter(card, tensors)
