"""`ranker train-labels`: make the emotion, topic and intent models, and the heads on an encoder's vectors."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ranker.cli.figures import figures_table, path_of
from ranker.cli.label import OpenLabeler, measure_on, with_encoder
from ranker.cli.options import home_of
from ranker.cli.output import Steps, note, out, steps
from ranker.cli.response_intent import train_response_intent
from ranker.encoders import load_encoder
from ranker.errors import NotFoundError
from ranker.evaluation.labels import LabelFigures, emotion_rows, intent_rows
from ranker.labels import HEAD, KINDS, RESPONSE_INTENT, as_kind
from ranker.labels.compact import read_fasttext, write_fasttext
from ranker.labels.head import read_head, write_head
from ranker.labels.newsgroups import read_newsgroups
from ranker.labels.store import Figure, Manifest, Training
from ranker.labels.training import SETTINGS, HeadSettings, train_fasttext, train_head
from ranker.training.data import parse_data
from ranker.types import Context, Encoder, LabelKind

_ED_LICENCE = "EmpatheticDialogues: CC BY-NC 4.0"
_SOURCES: dict[LabelKind, tuple[str, str]] = {
    "emotion": ("EmpatheticDialogues train, situations", _ED_LICENCE),
    "topic": (
        "20 Newsgroups by date, train, without headers, quotes and signatures",
        "20 Newsgroups: none stated",
    ),
    "intent": (
        "EmpatheticDialogues train, utterances with machine labels",
        f"{_ED_LICENCE}; labels: none stated",
    ),
}


def train_labels(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="emotion, topic, intent; or on an encoder's vectors: head (emotions), response-intent"
        ),
    ],
    data: Annotated[
        list[str],
        typer.Option("--data", help="ed=PATH; for topics 20news=PATH; for intents ed=PATH and intents=PATH."),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The model's folder.", show_default="models/labels/WHAT of the home"),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="The encoder of a head, by name or folder.", show_default="the embedded one"),
    ] = None,
) -> None:
    """Train a label model, measure it, and write it where `ranker label` finds it.

    The same data give the same model. Without --out it goes before the bundled one.

    Examples:

      ranker train-labels emotion --data ed=empatheticdialogues

      ranker train-labels head --data ed=empatheticdialogues --encoder my-encoder

      ranker train-labels response-intent --data ed=empatheticdialogues --data intents=intents
    """
    known = (*KINDS, HEAD, RESPONSE_INTENT)
    if what not in known:
        raise NotFoundError.of("label model", what, known)
    home = home_of(ctx)
    target = folder.expanduser() if folder is not None else home.models / "labels" / what
    corpora = parse_data(data)
    if what == RESPONSE_INTENT:
        train_response_intent(corpora, target, load_encoder(encoder, home=home), home)
        return
    with steps() as step:
        if what == HEAD:
            measured = _train_head(corpora, target, load_encoder(encoder, home=home), step)
        else:
            measured = _train_fasttext(as_kind(what), corpora, target, step)
    out.print(figures_table(measured))
    note(f"The {what} model is in {target}.")


def _train_fasttext(
    kind: LabelKind, data: dict[str, Path], target: Path, step: Steps
) -> dict[str, LabelFigures]:
    rows = _rows(kind, data)
    settings = SETTINGS[kind]
    advance = step(f"Training {kind} on {len(rows):,} texts", 1)
    model = train_fasttext(rows, kind, settings)
    advance(1, 1)
    source, licence = _SOURCES[kind]
    training = Training(source, licence, len(rows), _text(asdict(settings)))
    manifest = Manifest(kind, model.labels, training, fasttext=model.shape)
    write_fasttext(target, manifest, model)
    # What counts is what was written: the numbers are rounded by then.
    written = read_fasttext(target)
    measured = measure_on(OpenLabeler(written), kind, data, None)
    write_fasttext(target, _with_figures(manifest, measured), model)
    return measured


def _train_head(
    data: dict[str, Path], target: Path, encoder: Encoder, step: Steps
) -> dict[str, LabelFigures]:
    rows = list(dict.fromkeys(emotion_rows(path_of(data, "ed"), "train").situations))
    contexts = [Context.of(text) for text, _ in rows]
    vectors = encoder.encode_contexts(contexts, step("Encoding situations", len(rows)))
    settings = HeadSettings()
    head = train_head(
        vectors,
        [name for _, name in rows],
        "emotion",
        encoder.fingerprint,
        settings,
        step("Training the head", settings.epoch),
    )
    source, licence = _SOURCES["emotion"]
    training = Training(source, licence, len(rows), _text(asdict(settings)))
    manifest = Manifest("emotion", head.names, training)
    write_head(target, manifest, head)
    opened = with_encoder(read_head(target, encoder=encoder.fingerprint), encoder)
    measured = measure_on(opened, "emotion", data, None)
    write_head(target, _with_figures(manifest, measured), head)
    return measured


def _rows(kind: LabelKind, data: dict[str, Path]) -> list[tuple[str, str]]:
    """The training rows of a kind, each once, in the corpus's order."""
    if kind == "emotion":
        rows = emotion_rows(path_of(data, "ed"), "train").situations
    elif kind == "topic":
        rows = read_newsgroups(path_of(data, "20news"), "train")
    else:
        rows = intent_rows(path_of(data, "ed"), path_of(data, "intents"), "train")
    return list(dict.fromkeys(rows))


def _with_figures(manifest: Manifest, measured: dict[str, LabelFigures]) -> Manifest:
    figures = []
    for name, found in measured.items():
        values = {"top-1": found.top_1, "top-3": found.top_3, "top-5": found.top_5}
        values |= {"macro F1": 100 * found.macro.f1, "weighted F1": 100 * found.weighted.f1}
        figures += [
            Figure(f"{figure}, {name}", round(value, 2), found.rows) for figure, value in values.items()
        ]
    return replace(manifest, figures=tuple(figures))


def _text(settings: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
