"""`ranker export`: a trained model as an encoder that answers without torch."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, print_json, wants_json
from ranker.errors import MissingExtraError
from ranker.labels import has_prepender, read_prepender
from ranker.types import Encoder

_CHECK_PAIRS = 1000


def export(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="A trained model: folder or hub id.")],
    name: Annotated[str, typer.Argument(help="Name of the encoder in your home.")],
    data: Annotated[list[str], typer.Option("--data", help="ed=PATH: held-out pairs to check on.")],
    split: Annotated[str, typer.Option(help="Split of held-out pairs.")] = "valid",
    out: Annotated[Path | None, typer.Option(help="Another folder than the home's models/NAME.")] = None,
    base_model: Annotated[str, typer.Option(help="What it was trained from.", show_default="MODEL")] = "",
    licence: Annotated[str, typer.Option(help="Licence of the weights.")] = "unstated",
    remark: Annotated[str, typer.Option(help="For the model card: data, limits.")] = "",
    float32: Annotated[bool, typer.Option("--float32", help="Do not quantise to int8.")] = False,
    as_json: JsonOption = None,
) -> None:
    """Export a trained model to int8 ONNX, check it, calibrate its confidence and write its card.

    It is refused where the vectors or P@1,100 fall short of the model's.

    Example: ranker export runs/mini/distill/model mine --data ed=DATA && ranker query --encoder mine "hello"
    """
    try:
        from sentence_transformers import SentenceTransformer

        from ranker.training.data import parse_data, read_pairs
        from ranker.training.export import export_onnx
    except ImportError as error:
        raise MissingExtraError.of(f"exporting ({error.name})", "train") from error
    from ranker.encoders.card import EncoderCard, Figure, Origin
    from ranker.encoders.loading import load_encoder
    from ranker.evaluation.calibration import calibrate
    from ranker.evaluation.precision import encode_pairs, precision

    [(corpus, path)] = parse_data(data).items()
    pairs = read_pairs(corpus, path, split, listener_only=True)
    texts = [pair.response for pair in pairs]
    folder = out or home_of(ctx).models / name

    def quality(encoder: Encoder) -> float:
        contexts, responses = encode_pairs(encoder, pairs)
        return precision(contexts, responses, texts).p_at_1.mean

    note("exporting and checking; this takes a few minutes")
    report = export_onnx(
        SentenceTransformer(model, device="cpu"),
        folder,
        name=name,
        origin=Origin(base_model=base_model or model, licence=licence, note=remark),
        check_texts=[text for pair in pairs[:_CHECK_PAIRS] for text in (pair.context.last, pair.response)],
        quantise=not float32,
        metric=quality,
        prepender=read_prepender(Path(model)) if has_prepender(Path(model)) else None,
    )
    encoder = load_encoder(folder)
    contexts, responses = encode_pairs(encoder, pairs)
    fitted = calibrate(contexts, responses, texts)
    measured = precision(contexts, responses, texts)
    before = report.metric_before or 0.0
    figures = (
        Figure(f"P@1,100 on {corpus} {split}", round(measured.p_at_1.mean, 2)),
        Figure(f"P@10,100 on {corpus} {split}", round(measured.p_at_10.mean, 2)),
        Figure("P@1,100 lost by the export", round(before - measured.p_at_1.mean, 2)),
        Figure("calibration error", round(fitted.error, 4)),
    )
    card = EncoderCard.load(folder)
    origin = replace(card.origin, figures=(*card.origin.figures, *figures))
    replace(card, origin=origin, calibration=fitted.calibration).save(folder)
    if wants_json(as_json):
        shown = [asdict(figure) for figure in figures]
        print_json({"folder": str(folder), **asdict(report), "figures": shown})
    else:
        for figure in (*card.origin.figures, *figures):
            note(f"{figure.name}: {figure.value}")
        note(f"Exported to {folder}. Use it: ranker build-index --pool ed --encoder {name}")
