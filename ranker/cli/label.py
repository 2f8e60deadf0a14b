"""`ranker label` and `ranker evaluate labels`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from ranker.cli.figures import figures_as_json, figures_table, path_of
from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, out, print_json, wants_json
from ranker.cli.response_intent import evaluate_response_intent
from ranker.encoders import load_encoder
from ranker.errors import InputError, NotFoundError
from ranker.evaluation import labels as label_evaluation
from ranker.home import Home
from ranker.labels import (
    HEAD,
    RESPONSE_INTENT,
    FastTextLabeler,
    HeadLabeler,
    VectorHead,
    as_kind,
    load_labeler,
    model_folder,
    names_of,
    read_head,
)
from ranker.labels.newsgroups import read_newsgroups
from ranker.labels.store import read_manifest
from ranker.storage import MANIFEST
from ranker.training.data import parse_data
from ranker.types import Context, Encoder, Label, LabelKind, Vectors

_BATCH = 4096
_BAR = 30
_DEPTH = 5

KindOption = Annotated[str, typer.Option(help="emotion, intent or topic.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="head (a classifier on the encoder's vectors), a model folder, or a fastText file.",
        show_default="the bundled fastText model",
    ),
]
HeadEncoderOption = Annotated[
    str | None, typer.Option(help="The encoder that a head reads.", show_default="the embedded one")
]

ANCHORS = {
    "emotion": (
        "Published on ED: fastText 42 % top-1, 75 % top-5; CAiRE 51.6 % and RoBERTa-GPT2 51.5 % top-1;"
        " BERT multi-task F1 25.2 %.",
    ),
    "intent": (
        "Published on ED: MEED2 weighted precision 26.6 %, recall 35.3 %, F1 28.6 %, for the intent of the"
        " reply to come (another task than labelling a given utterance).",
    ),
    "topic": (),
}


@dataclass(frozen=True, slots=True)
class OpenLabeler:
    """A labeler of texts, and the encoder behind it where it is a head."""

    labeler: FastTextLabeler | HeadLabeler
    encoder: Encoder | None = None

    def predict_contexts(self, contexts: list[Context], k: int) -> list[tuple[Label, ...]]:
        """Labels of whole contexts: a head reads their vectors, fastText their turns as one text."""
        if self.encoder is not None and isinstance(self.labeler, HeadLabeler):
            return self.labeler.head.predict_vectors(self.encoder.encode_contexts(contexts), k)
        return self.labeler.predict([" ".join(context.turns) for context in contexts], k)


def label(
    ctx: typer.Context,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts to label. None, or -: one per line from stdin.")
    ] = None,
    kind: KindOption = "emotion",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many labels of each text.")] = 3,
    model: ModelOption = None,
    encoder: HeadEncoderOption = None,
    as_json: JsonOption = None,
) -> None:
    """Predict the emotion, intent or topic of texts.

    Examples:

      ranker label "I finally got promoted at work!"

      ranker label --kind topic -k 1 "The shuttle reached orbit this morning."

      cat utterances.txt | ranker label --kind intent > labels.jsonl
    """
    from_stdin = not texts or texts == ["-"]
    if from_stdin and sys.stdin.isatty():
        raise InputError("no text given", fix='For example: ranker label "I finally got promoted at work!"')
    labeler = open_labeler(as_kind(kind), model, encoder, home_of(ctx)).labeler
    for batch in _stdin_batches() if from_stdin else iter([texts or []]):
        for text, labels in zip(batch, labeler.predict(batch, k), strict=True):
            if wants_json(as_json):
                print_json({"text": text, "labels": [_as_json(found) for found in labels]})
            else:
                _print_bars(text, labels)


def evaluate_labels(
    ctx: typer.Context,
    data: Annotated[
        list[str],
        typer.Option("--data", help="ed=PATH, and for topics 20news=PATH, for intents intents=PATH."),
    ],
    kind: Annotated[
        str, typer.Option(help="emotion, intent, topic, or response-intent (of the reply to come).")
    ] = "emotion",
    split: Annotated[
        str | None, typer.Option(help="The corpus's split.", show_default="valid; test for topics")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the confusion matrix here (PNG).", show_default=False)
    ] = None,
    model: ModelOption = None,
    encoder: HeadEncoderOption = None,
    as_json: JsonOption = None,
) -> None:
    """Measure a labeler: accuracy within the first 1, 3 and 5, F1, calibration and confusion.

    Example: ranker evaluate labels --data ed=empatheticdialogues --plot confusion.png
    """
    if kind == RESPONSE_INTENT:
        evaluate_response_intent(parse_data(data), split or "valid", model, encoder, home_of(ctx), as_json)
        return
    chosen = as_kind(kind)
    opened = open_labeler(chosen, model, encoder, home_of(ctx))
    measured = measure_on(opened, chosen, parse_data(data), split)
    if wants_json(as_json):
        for name, figures in measured.items():
            print_json({"rows_of": name, "kind": kind} | figures_as_json(figures))
    else:
        out.print(figures_table(measured))
        for line in ANCHORS[chosen]:
            note(line)
    if plot is not None:
        name, figures = next(iter(measured.items()))
        label_evaluation.plot_confusion(figures, plot, f"{kind}, {name}")
        note(f"Confusion matrix of {name}: {plot}")


def open_labeler(kind: LabelKind, model: str | None, encoder_name: str | None, home: Home) -> OpenLabeler:
    """The labeler that the options ask for, with its encoder where it is a head."""
    folder = Path(model).expanduser() if model else None
    if model == HEAD and folder is not None and not (folder / MANIFEST).is_file():
        folder = model_folder(HEAD, home)
    is_head = folder is not None and folder.is_dir() and read_manifest(folder).head is not None
    if folder is None or not is_head:
        return OpenLabeler(load_labeler(kind, folder, home=home))
    encoder = load_encoder(encoder_name, home=home)
    head = read_head(folder, encoder=encoder.fingerprint)
    if head.kind != kind:
        raise NotFoundError(f"the head in {folder} predicts {head.kind}, not {kind}")
    return with_encoder(head, encoder)


def with_encoder(head: VectorHead, encoder: Encoder) -> OpenLabeler:
    """A head that reads texts through its encoder, each as a context of one turn."""

    def encode(texts: Sequence[str]) -> Vectors:
        return encoder.encode_contexts([Context.of(text) for text in texts])

    return OpenLabeler(HeadLabeler(head, encode), encoder)


def measure_on(
    opened: OpenLabeler, kind: LabelKind, data: dict[str, Path], split: str | None
) -> dict[str, label_evaluation.LabelFigures]:
    """Figures by what was measured on, the most telling first."""

    def of(predicted: list[tuple[Label, ...]], truths: list[str]) -> label_evaluation.LabelFigures:
        return label_evaluation.measure(predicted, truths, names_of(kind))

    def of_texts(rows: list[tuple[str, str]]) -> label_evaluation.LabelFigures:
        return of(opened.labeler.predict([text for text, _ in rows], _DEPTH), [name for _, name in rows])

    if kind == "emotion":
        split = split or "valid"
        rows = label_evaluation.emotion_rows(path_of(data, "ed"), split)
        from_contexts = opened.predict_contexts([context for context, _ in rows.contexts], _DEPTH)
        return {
            f"ED {split}, situations": of_texts(rows.situations),
            f"ED {split}, contexts": of(from_contexts, [name for _, name in rows.contexts]),
        }
    if kind == "topic":
        split = split or "test"
        return {f"20 Newsgroups {split}": of_texts(read_newsgroups(path_of(data, "20news"), split))}
    split = split or "valid"
    labels = path_of(data, "intents")
    weak = label_evaluation.intent_rows(path_of(data, "ed"), labels, split)
    measured = {f"ED {split}, agreement with machine labels": of_texts(weak)}
    manual = label_evaluation.manual_intent_rows(labels)
    if manual:
        measured["hand-labelled lines of 8 intents"] = of_texts(manual)
    return measured


def _as_json(found: Label) -> dict[str, Any]:
    return {"kind": found.kind, "name": found.name, "probability": round(found.probability, 4)}


def _print_bars(text: str, labels: tuple[Label, ...]) -> None:
    out.print(text, style="bold", markup=False)
    width = max((len(found.name) for found in labels), default=0)
    for found in labels:
        bar = "█" * max(1, round(_BAR * found.probability))
        out.print(f"  {found.name:<{width}} [magenta]{bar:<{_BAR}}[/] {found.probability:6.1%}")
    if not labels:
        out.print("  nothing to judge by", style="dim")


def _stdin_batches() -> Iterator[list[str]]:
    """Lines of stdin, each a text; an empty line stays, so that answers match lines."""
    texts = (raw.decode("utf-8", "replace").rstrip("\r\n") for raw in sys.stdin.buffer)
    while batch := list(islice(texts, _BATCH)):
        yield batch
