"""Making label models. fastText trains its own kind (extra `train`); a head is fitted by torch in seconds."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.errors import InputError, MissingExtraError, TrainingError
from ranker.labels.binary import read_fasttext_file
from ranker.labels.compact import prune
from ranker.labels.fasttext import FastTextLabeler, FastTextModel
from ranker.labels.head import Layer, VectorHead
from ranker.labels.taxonomy import check_names, names_of
from ranker.labels.text import Tokenisation, tokens_of
from ranker.types import LabelKind, Progress, Vectors

MOST_BYTES = 1_950_000
"""How large a bundled fastText model may be: below 2 MB, with its header."""

LabelledText = tuple[str, str]
"""A text and the name of its label."""


@dataclass(frozen=True, slots=True)
class FastTextSettings:
    """fastText's own settings, under its names where they say enough."""

    dim: int = 32
    lr: float = 0.1
    epoch: int = 30
    word_ngrams: int = 2
    min_count: int = 1
    min_chars: int = 0
    max_chars: int = 0
    bucket: int = 200_000
    tokenisation: Tokenisation = "words"
    held_out: float = 0.1
    """The part of the rows on which a first model is calibrated, before one is trained on all; 0: do not."""


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """A head's training. `hidden` 0: one linear layer."""

    hidden: int = 512
    epoch: int = 30
    batch: int = 256
    lr: float = 3e-3
    weight_decay: float = 0.02
    dropout: float = 0.6
    label_smoothing: float = 0.1
    held_out: float = 0.1
    """The part of the rows on which the number of epochs and the temperature are chosen."""
    seed: int = 0


SETTINGS: dict[LabelKind, FastTextSettings] = {
    "emotion": FastTextSettings(dim=32, lr=0.1, epoch=30, word_ngrams=2),
    "topic": FastTextSettings(dim=20, lr=0.2, epoch=30, word_ngrams=1, min_count=3),
    "intent": FastTextSettings(dim=32, lr=0.5, epoch=5, word_ngrams=2, min_count=2),
}
"""What the bundled models are trained with."""


def train_fasttext(
    rows: Sequence[LabelledText],
    kind: LabelKind,
    settings: FastTextSettings,
    most_bytes: int | None = MOST_BYTES,
) -> FastTextModel:
    """A calibrated fastText classifier of the rows, pruned to `most_bytes` (None: whole). It repeats itself.

    Raises MissingExtraError without fastText, NotFoundError for a label that is none of the kind, InputError
    without rows, TrainingError where training fails.
    """
    fasttext = _fasttext()
    if not rows:
        raise InputError("there is no text to train on")
    check_names(kind, {name for _, name in rows})
    # A corpus sorted by label would be forgotten as it is read.
    rows = random.Random(0).sample(rows, len(rows))
    held = int(len(rows) * settings.held_out)
    temperature = 1.0
    if held:
        trial = FastTextLabeler(kind, _run_fasttext(fasttext, rows[held:], settings))
        temperature = _temperature_of(trial, rows[:held])
    model = _run_fasttext(fasttext, rows, settings)
    model = replace(model, output=np.asarray(model.output / temperature, np.float32))
    return model if most_bytes is None else prune(model, most_bytes)


def _run_fasttext(fasttext: Any, rows: Sequence[LabelledText], settings: FastTextSettings) -> FastTextModel:
    """What fastText makes of the rows, in their order."""
    with tempfile.TemporaryDirectory(prefix="ranker-labels-") as folder:
        source, target = Path(folder) / "train.txt", Path(folder) / "model.bin"
        with source.open("w", encoding="utf-8", newline="\n") as file:
            for text, name in rows:
                file.write(f"__label__{name} {' '.join(tokens_of(text, settings.tokenisation))}\n")
        try:
            trained = fasttext.train_supervised(
                str(source),
                dim=settings.dim,
                lr=settings.lr,
                epoch=settings.epoch,
                wordNgrams=settings.word_ngrams,
                minCount=settings.min_count,
                minn=settings.min_chars,
                maxn=settings.max_chars,
                bucket=settings.bucket,
                loss="softmax",
                thread=1,  # more threads race, and no two runs would be the same
                verbose=0,
            )
            trained.save_model(str(target))
        except (RuntimeError, ValueError) as error:
            raise TrainingError(f"fastText could not train: {error}") from error
        return read_fasttext_file(target, settings.tokenisation)


def _temperature_of(labeler: FastTextLabeler, rows: Sequence[LabelledText]) -> float:
    """The temperature that makes a labeler's probabilities of the rows' labels likeliest."""
    place = {name: number for number, name in enumerate(labeler.names)}
    known = [(text, place[name]) for text, name in rows if name in place]
    if not known:
        return 1.0
    probabilities = labeler.probabilities([text for text, _ in known])
    logarithms = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    return best_temperature(logarithms, np.asarray([target for _, target in known]))


def train_head(
    vectors: Vectors,
    names: Sequence[str],
    kind: LabelKind,
    encoder: str,
    settings: HeadSettings,
    progress: Progress | None = None,
) -> VectorHead:
    """A head on the vectors (rows, dim) of the encoder with this fingerprint; `names` are their labels.

    Raises MissingExtraError without torch, NotFoundError for a label that is none of the kind, InputError
    where rows do not match or are too few.
    """
    check_names(kind, set(names))
    if len(vectors) != len(names) or len(names) < 2:
        raise InputError(f"{len(vectors)} vectors with {len(names)} labels cannot be trained on")
    known = names_of(kind)
    targets = np.asarray([known.index(name) for name in names], np.int64)
    layers, temperature = _fit(vectors, targets, len(known), settings, progress)
    return VectorHead(kind, known, encoder, layers, temperature)


def _fit(
    vectors: Vectors,
    targets: NDArray[np.int64],
    labels: int,
    settings: HeadSettings,
    progress: Progress | None,
) -> tuple[tuple[Layer, ...], float]:
    """Layers of the epoch with the lowest held-out loss, and the temperature that lowers it further."""
    try:
        import torch
        from torch.nn import functional
    except ImportError as error:
        raise MissingExtraError.of("training a head", "train") from error

    torch.manual_seed(settings.seed)
    order = torch.randperm(len(vectors))
    held = max(1, int(len(vectors) * settings.held_out))
    inputs, gold = torch.from_numpy(vectors), torch.from_numpy(targets)
    train, rest = order[held:], order[:held]
    network = _network(vectors.shape[1], labels, settings)
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    steps = settings.epoch * -(-len(train) // settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.lr, total_steps=steps, pct_start=0.1)
    best_loss, best_layers, best_scores = np.inf, _layers(network), None
    for epoch in range(settings.epoch):
        network.train()
        shuffled = train[torch.randperm(len(train))]
        for start in range(0, len(shuffled), settings.batch):
            batch = shuffled[start : start + settings.batch]
            loss: Any = functional.cross_entropy(
                network(inputs[batch]), gold[batch], label_smoothing=settings.label_smoothing
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        network.eval()
        with torch.no_grad():
            scores = network(inputs[rest])
        held_loss = float(functional.cross_entropy(scores, gold[rest]))
        if held_loss < best_loss:
            best_loss, best_layers, best_scores = held_loss, _layers(network), scores.numpy()
        if progress is not None:
            progress(epoch + 1, settings.epoch)
    if best_scores is None:
        raise TrainingError("the head did not train: its loss is not a number")
    return best_layers, best_temperature(best_scores, targets[rest.numpy()])


def best_temperature(scores: NDArray[np.float32], targets: NDArray[np.int64]) -> float:
    """The divisor of the scores (rows, labels) that makes the targets likeliest, within 0.25 and 4."""
    choices = np.geomspace(0.25, 4.0, 121)
    losses = [_loss(scores / choice, targets) for choice in choices]
    return float(choices[int(np.argmin(losses))])


def _loss(scores: NDArray[Any], targets: NDArray[np.int64]) -> float:
    shifted = scores - scores.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(targets)), targets]
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - chosen))


def _network(inputs: int, outputs: int, settings: HeadSettings) -> Any:
    from torch import nn

    if settings.hidden == 0:
        return nn.Sequential(nn.Dropout(settings.dropout), nn.Linear(inputs, outputs))
    return nn.Sequential(
        nn.Linear(inputs, settings.hidden),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(settings.hidden, outputs),
    )


def _layers(network: Any) -> tuple[Layer, ...]:
    """Copies of the linear layers, as a head multiplies them."""
    return tuple(
        Layer(module.weight.detach().numpy().T.copy(), module.bias.detach().numpy().copy())
        for module in network
        if hasattr(module, "weight")
    )


def _fasttext() -> Any:
    try:
        import fasttext
    except ImportError as error:
        raise MissingExtraError(
            "training fastText models needs the package fasttext-wheel (Python 3.10 to 3.12)",
            fix="Run: pip install fasttext-wheel",
        ) from error
    return fasttext
