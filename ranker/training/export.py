"""From a sentence-transformers model to the folder that `load_encoder` reads: ONNX, int8, checked.

Run as `python -m ranker.training.export MODEL FOLDER --name NAME --licence LICENCE --texts FILE`.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ranker.encoders import OnnxEncoder
from ranker.encoders.card import CARD_FILE, EncoderCard, Figure, FileStamp, Origin
from ranker.encoders.layout import CONTEXT_WINDOW, MAX_TOKENS, TokenLayout
from ranker.errors import RankerError, TrainingError
from ranker.labels import Prepender, has_prepender, read_prepender
from ranker.storage import staged_folder, storage_errors, write_bytes
from ranker.types import Calibration, Context, Encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

Metric = Callable[[Encoder], float]
"""Quality of an encoder in points of 100, such as P@1,100; larger is better."""

MIN_MEAN_COSINE = 0.99
MAX_METRIC_LOSS = 0.5
_CALIBRATION_ROWS = 400
_FLOAT_BATCH = 32
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """How near the exported encoder is to the model. The metrics are None where none was given."""

    mean_cosine: float
    min_cosine: float
    size: int
    metric_before: float | None = None
    metric_after: float | None = None


def export_onnx(
    model: SentenceTransformer,
    folder: Path,
    *,
    name: str,
    origin: Origin,
    check_texts: Sequence[str],
    quantise: bool = True,
    metric: Metric | None = None,
    calibration: Calibration | None = None,
    prepender: Prepender | None = None,
    max_tokens: int = MAX_TOKENS,
    context_window: int = CONTEXT_WINDOW,
) -> ExportReport:
    """Export `model` to `folder`, which appears, or replaces an older encoder, only when all checks passed.

    `check_texts` are real texts in conversation order: half of them calibrate the quantisation, the others,
    alone and as contexts of several turns, measure the loss. The model is not changed: adapters are merged in
    a copy. A model with a `Router` gives two graphs, any other one. `prepender` is that of the model's folder
    (see ranker.labels.prepend), where it has one.

    Raises TrainingError where the mean cosine to the model's vectors is under 0.99, where the metric falls by
    more than 0.5, or where `folder` holds something else.
    """
    from ranker.encoders.torch import TorchEncoder, layout_of, towers

    if len(check_texts) < 2:
        raise TrainingError("the export needs at least two texts to check itself with")
    _require_replaceable(folder)
    plain = _plain_copy(model)
    max_tokens = min(max_tokens, plain.max_seq_length or max_tokens)
    layout = layout_of(plain, max_tokens=max_tokens, context_window=context_window, prepender=prepender)
    reference = TorchEncoder(plain, max_tokens=max_tokens, prepender=prepender)
    calibrating, checking = check_texts[::2], check_texts[1::2]
    samples = _samples(layout, calibrating) if quantise else []
    with staged_folder(folder.parent) as staged:
        context_tower, candidate_tower = towers(plain)
        graphs = {"model.onnx": context_tower}
        if candidate_tower is not context_tower:
            graphs = {"context.onnx": context_tower, "candidate.onnx": candidate_tower}
        for file, tower in graphs.items():
            _write_graph(tower, staged / file, samples)
        write_bytes(staged / _TOKENIZER, layout.tokenizer_json)
        if prepender is not None:
            prepender.save(staged)
        card = EncoderCard(
            name=name,
            dim=reference.dim,
            batch_size=1 if quantise else _FLOAT_BATCH,
            pooling=_pooling(plain),
            layout=layout.settings,
            context_graph=next(iter(graphs)),
            candidate_graph=list(graphs)[-1],
            tokenizer=_TOKENIZER,
            files=tuple(FileStamp.of(staged / file) for file in (*graphs, _TOKENIZER)),
            origin=origin,
            prepend=prepender.setting if prepender else None,
            calibration=calibration,
        )
        card.save(staged)
        report = _check(reference, OnnxEncoder(staged), checking, context_window, metric)
        replace(card, origin=_with_figures(origin, report)).save(staged)
        _put_in_place(staged, folder)
    return report


def _plain_copy(model: SentenceTransformer) -> SentenceTransformer:
    """A float32 copy on the CPU in evaluation mode: adapters merged, attention in plain operators."""
    from transformers import PreTrainedModel

    plain = copy.deepcopy(model).cpu().float().eval()
    _merge_adapters(plain)
    for module in plain.modules():
        if isinstance(module, PreTrainedModel):
            module.set_attn_implementation("eager")
    return plain


def _merge_adapters(module: nn.Module) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, child in list(module.named_children()):
        if isinstance(child, BaseTunerLayer):
            child.merge()
            setattr(module, name, child.get_base_layer())
        else:
            _merge_adapters(child)


def _samples(layout: TokenLayout, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of candidates and contexts spread over all of `texts`."""
    step = max(1, 2 * len(texts) // _CALIBRATION_ROWS)
    candidates = [layout.candidate(text) for text in texts[::step]]
    contexts = [layout.context(one) for one in _contexts(texts, layout.settings.context_window)[::step]]
    return [*candidates, *contexts]


def _contexts(texts: Sequence[str], window: int) -> list[Context]:
    """A context that ends with each text, of one to `window` turns in turn."""
    ends = range(1, len(texts) + 1)
    return [Context(tuple(texts[max(0, end - 1 - end % window) : end])) for end in ends]


def _write_graph(tower: nn.Module, path: Path, samples: Sequence[Sequence[int]]) -> None:
    """Export one tower to one file, in int8 where there are samples."""
    import torch

    from ranker.training.quantise import only_errors, quantise

    ids = torch.ones((2, 7), dtype=torch.int64)
    dynamic = {0: "batch", 1: "tokens"}
    exported = path.with_suffix(".fp32.onnx") if samples else path
    with warnings.catch_warnings(), only_errors("torch.onnx"):
        # It remarks upon libraries that are not needed, and upon both inputs sharing their axes' names.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            tower,
            (ids, torch.ones_like(ids)),
            str(exported),
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=["input_ids", "attention_mask"],
            output_names=["vector"],
            dynamic_shapes={"input_ids": dynamic, "attention_mask": dynamic},
        )
    if samples:
        quantise(exported, path, samples)
        exported.unlink()


def _pooling(model: SentenceTransformer) -> str:
    from sentence_transformers.sentence_transformer.modules import Pooling

    modes = {str(module.pooling_mode) for module in model.modules() if isinstance(module, Pooling)}
    return " + ".join(sorted(modes)) or "none"


def _check(
    reference: Encoder, exported: Encoder, texts: Sequence[str], window: int, metric: Metric | None
) -> ExportReport:
    """Compare the exported encoder with the model. Raises TrainingError where too much was lost."""
    contexts = _contexts(texts, window)
    cosines = np.concatenate(
        [
            (reference.encode_candidates(texts) * exported.encode_candidates(texts)).sum(axis=1),
            (reference.encode_contexts(contexts) * exported.encode_contexts(contexts)).sum(axis=1),
        ]
    )
    mean, low = float(cosines.mean()), float(cosines.min())
    if not mean >= MIN_MEAN_COSINE:
        raise TrainingError(
            f"the exported encoder is too far from the model: mean cosine {mean:.4f} < {MIN_MEAN_COSINE}",
            fix="Export without quantisation, or from a model trained further",
        )
    before = after = None
    if metric is not None:
        before, after = metric(reference), metric(exported)
        if not before - after <= MAX_METRIC_LOSS:
            raise TrainingError(
                f"the exported encoder falls from {before:.2f} to {after:.2f} points,"
                f" more than {MAX_METRIC_LOSS} lost",
                fix="Export without quantisation",
            )
    size = sum(stamp.size for stamp in exported.card.files) if isinstance(exported, OnnxEncoder) else 0
    return ExportReport(mean, low, size, before, after)


def _with_figures(origin: Origin, report: ExportReport) -> Origin:
    measured = (
        Figure("mean cosine to the float32 model", round(report.mean_cosine, 5)),
        Figure("lowest cosine to the float32 model", round(report.min_cosine, 5)),
    )
    return replace(origin, figures=(*origin.figures, *measured))


def _require_replaceable(folder: Path) -> None:
    if (
        folder.exists()
        and not (folder / CARD_FILE).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise TrainingError(f"{folder} exists and is not an encoder", fix="Choose another folder")


def _put_in_place(staged: Path, folder: Path) -> None:
    """Rename the finished folder to its name, an older one out of the way first."""
    old = folder.with_name(f".{folder.name}.old")
    with storage_errors(folder):
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.replace(old)
        staged.replace(folder)
        shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this module. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ranker.training.export", description=__doc__)
    parser.add_argument("model", help="folder or hub id of a sentence-transformers model")
    parser.add_argument("folder", type=Path, help="encoder folder to write")
    parser.add_argument("--name", required=True)
    parser.add_argument("--licence", required=True, help="licence of the weights, such as Apache-2.0")
    parser.add_argument("--texts", type=Path, required=True, help="real texts to check with, one a line")
    parser.add_argument("--base-model", help="what the weights are, or were trained from (default: MODEL)")
    parser.add_argument("--float32", action="store_true", help="do not quantise")
    given = parser.parse_args(arguments)
    try:
        from sentence_transformers import SentenceTransformer

        texts = [line.strip() for line in given.texts.read_text("utf-8", "replace").splitlines()]
        report = export_onnx(
            SentenceTransformer(given.model, device="cpu"),
            given.folder,
            name=given.name,
            origin=Origin(base_model=given.base_model or given.model, licence=given.licence),
            check_texts=[text for text in texts if text],
            quantise=not given.float32,
            prepender=read_prepender(Path(given.model)) if has_prepender(Path(given.model)) else None,
        )
    except (RankerError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
