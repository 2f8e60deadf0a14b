"""A classifier on an encoder's vectors: a linear layer, or one hidden layer before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ranker.errors import InputError, IntegrityError, MismatchError
from ranker.labels.fasttext import Floats, best_labels, check_texts
from ranker.labels.store import HeadShape, Manifest, read_manifest, read_tensors, tensor, write_model
from ranker.types import Label, LabelKind, Vectors, clean_text

_COMMANDS: dict[LabelKind, str] = {
    "emotion": "head --data ed=PATH",
    "intent": "response-intent --data ed=PATH --data intents=PATH",
    "topic": "--help",
}

Encode = Callable[[Sequence[str]], Vectors]
"""Texts, none of them empty, to the vectors (texts, dim) that a head reads."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`vectors @ weight + bias`: weight is (inputs, outputs)."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class VectorHead:
    """Probabilities of labels from vectors of the encoder whose fingerprint is `encoder`.

    Between layers stands a ReLU; the scores are divided by `temperature`, which makes the probabilities
    agree with how often they are right.
    """

    kind: LabelKind
    names: tuple[str, ...]
    encoder: str
    layers: tuple[Layer, ...]
    temperature: float = 1.0

    @property
    def dim(self) -> int:
        return len(self.layers[0].weight)

    def scores(self, vectors: Vectors) -> Floats:
        """(vectors, labels), not yet probabilities. Raises InputError for vectors of another size."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise InputError(f"the {self.kind} head reads vectors of {self.dim}, not {vectors.shape}")
        hidden = vectors @ self.layers[0].weight + self.layers[0].bias
        for layer in self.layers[1:]:
            hidden = np.maximum(hidden, 0.0) @ layer.weight + layer.bias
        return np.asarray(hidden, np.float32)

    def probabilities(self, vectors: Vectors) -> Floats:
        """(vectors, labels), each row a distribution."""
        scores = self.scores(vectors) / self.temperature
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)

    def predict_vectors(self, vectors: Vectors, k: int = 1) -> list[tuple[Label, ...]]:
        """The k best labels of each vector, most probable first."""
        return best_labels(self.kind, self.names, self.probabilities(vectors), k)


class HeadLabeler:
    """A head and the encoder in front of it, as a labeler of texts."""

    def __init__(self, head: VectorHead, encode: Encode) -> None:
        self.kind = head.kind
        self.head = head
        self._encode = encode

    @property
    def names(self) -> tuple[str, ...]:
        return self.head.names

    def predict(self, texts: Sequence[str], k: int = 1) -> list[tuple[Label, ...]]:
        """Up to k labels of each text, most probable first; none for an empty text."""
        return best_labels(self.kind, self.names, self.probabilities(texts), k)

    def probabilities(self, texts: Sequence[str]) -> Floats:
        """(texts, labels), each row a distribution; all zero for an empty text."""
        check_texts(texts)
        cleaned = [clean_text(text) for text in texts]
        places = [place for place, text in enumerate(cleaned) if text]
        found = np.zeros((len(texts), len(self.names)), np.float32)
        if places:
            found[places] = self.head.probabilities(self._encode([cleaned[place] for place in places]))
        return found


def write_head(folder: Path, manifest: Manifest, head: VectorHead) -> Manifest:
    """Write a head. Returns the manifest as written."""
    tensors = {}
    for place, layer in enumerate(head.layers):
        tensors[f"weight.{place}"] = layer.weight.astype(np.float32)
        tensors[f"bias.{place}"] = layer.bias.astype(np.float32)
    shape = HeadShape(head.encoder, head.dim, float(head.temperature))
    shown = replace(manifest, kind=head.kind, labels=head.names, head=shape, fasttext=None)
    return write_model(folder, shown, tensors)


def read_head(folder: Path, *, encoder: str) -> VectorHead:
    """The head in a model folder, for the encoder with this fingerprint.

    Raises NotFoundError where there is none, IntegrityError where it is damaged, and MismatchError where it
    was trained on another encoder's vectors.
    """
    manifest = read_manifest(folder)
    shape = manifest.head
    if shape is None:
        raise IntegrityError(f"{folder} holds no head")
    if shape.encoder != encoder:
        raise MismatchError(
            f"the {manifest.kind} head in {folder} was trained for encoder {shape.encoder}, not {encoder}",
            fix=f"Train it again: ranker train-labels {_COMMANDS[manifest.kind]}",
        )
    tensors = read_tensors(folder, manifest)
    layers = []
    inputs = shape.dim
    for place in range(len(tensors) // 2):
        weight = tensor(tensors, f"weight.{place}", np.float32, (inputs, -1))
        layers.append(Layer(weight, tensor(tensors, f"bias.{place}", np.float32, (weight.shape[1],))))
        inputs = weight.shape[1]
    is_finite = all(np.isfinite(layer.weight).all() and np.isfinite(layer.bias).all() for layer in layers)
    if not layers or inputs != len(manifest.labels) or not is_finite or not 0 < shape.temperature < np.inf:
        raise IntegrityError(f"the head in {folder} does not fit its manifest")
    return VectorHead(manifest.kind, manifest.labels, encoder, tuple(layers), shape.temperature)
