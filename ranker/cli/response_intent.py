"""The predictor of the intent of the reply to come: training it, and measuring what it is good for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ranker.cli.figures import figures_as_json, figures_table, path_of
from ranker.cli.output import Steps, note, out, print_json, steps, table, wants_json
from ranker.encoders import load_encoder
from ranker.evaluation.intents import Reweighting, reweighted
from ranker.evaluation.labels import LabelFigures, measure, response_intent_rows
from ranker.evaluation.precision import encode_pairs
from ranker.home import Home
from ranker.labels import RESPONSE_INTENT, VectorHead, load_labeler, model_folder, read_head, write_head
from ranker.labels.store import Figure, Manifest, Training
from ranker.labels.training import HeadSettings, train_head
from ranker.types import Encoder

_DEPTH = 5
_ANCHOR = "Published on ED: MEED2 weighted precision 26.6 %, recall 35.3 %, F1 28.6 %."
_SOURCE = "EmpatheticDialogues train, contexts with the machine label of the listener's reply"
_LICENCE = "EmpatheticDialogues: CC BY-NC 4.0; labels: none stated"


@dataclass(frozen=True, slots=True)
class Measured:
    """How well the reply's intent is predicted, and what ranking gains by it."""

    labels: LabelFigures
    reweighting: tuple[Reweighting, ...]


def train_response_intent(data: dict[str, Path], target: Path, encoder: Encoder, home: Home) -> None:
    """Train the predictor on the vectors of an encoder, measure it and write it to `target`."""
    rows = response_intent_rows(path_of(data, "ed"), path_of(data, "intents"), "train")
    settings = HeadSettings()
    with steps() as step:
        vectors = encoder.encode_contexts(
            [pair.context for pair, _ in rows], step("Encoding contexts", len(rows))
        )
        names = [name for _, name in rows]
        head = train_head(
            vectors, names, "intent", encoder.fingerprint, settings, step("Training the head", settings.epoch)
        )
        shown = ", ".join(f"{name} {value}" for name, value in asdict(settings).items())
        manifest = Manifest("intent", head.names, Training(_SOURCE, _LICENCE, len(rows), shown))
        write_head(target, manifest, head)
        found = _measure(read_head(target, encoder=encoder.fingerprint), encoder, data, "valid", home, step)
    write_head(target, replace(manifest, figures=_figures(found)), head)
    _print(found)
    note(f"The {RESPONSE_INTENT} model is in {target}.")


def evaluate_response_intent(
    data: dict[str, Path],
    split: str,
    model: str | None,
    encoder_name: str | None,
    home: Home,
    as_json: bool | None,
) -> None:
    """Measure the predictor in the folder `model`, else the home's or the package's."""
    encoder = load_encoder(encoder_name, home=home)
    folder = Path(model).expanduser() if model else model_folder(RESPONSE_INTENT, home)
    head = read_head(folder, encoder=encoder.fingerprint)
    with steps() as step:
        found = _measure(head, encoder, data, split, home, step)
    if wants_json(as_json):
        print_json(
            {"rows_of": f"ED {split}, contexts", "kind": RESPONSE_INTENT}
            | figures_as_json(found.labels)
            | {"reweighting": [_as_json(one) for one in found.reweighting]}
        )
    else:
        _print(found)


def _measure(
    head: VectorHead, encoder: Encoder, data: dict[str, Path], split: str, home: Home, step: Steps
) -> Measured:
    rows = response_intent_rows(path_of(data, "ed"), path_of(data, "intents"), split)
    pairs, truths = [pair for pair, _ in rows], [name for _, name in rows]
    texts = [pair.response for pair in pairs]
    contexts, responses = encode_pairs(encoder, pairs, step(f"Encoding ED {split}", 2 * len(pairs)))
    labels = measure(head.predict_vectors(contexts, _DEPTH), truths, head.names)
    # As in an index: the intent that is predicted of each candidate, not the label that was trained towards.
    intents = load_labeler("intent", home=home).predict(texts, 1)
    probabilities = head.probabilities(contexts)
    return Measured(labels, tuple(reweighted(contexts, responses, texts, probabilities, intents, head.names)))


def _figures(found: Measured) -> tuple[Figure, ...]:
    labels = found.labels
    values = {
        "top-1": labels.top_1,
        "top-5": labels.top_5,
        "weighted precision": 100 * labels.weighted.precision,
        "weighted recall": 100 * labels.weighted.recall,
        "weighted F1": 100 * labels.weighted.f1,
    }
    values |= {f"P@1,100 at weight {one.weight:g}": one.precision.p_at_1.mean for one in found.reweighting}
    return tuple(Figure(f"{name}, ED valid", round(value, 2), labels.rows) for name, value in values.items())


def _print(found: Measured) -> None:
    out.print(figures_table({"intent of the reply to come": found.labels}))
    note(f"{_ANCHOR} The truths are machine labels.")
    shown = table("weight of log p(intent)", "P@1,100", "±", "P@10,100", title="ranking with it")
    for one in found.reweighting:
        first = one.precision.p_at_1
        shown.add_row(
            f"{one.weight:g}",
            f"{first.mean:.2f}",
            f"{first.high - first.mean:.2f}",
            f"{one.precision.p_at_10.mean:.2f}",
        )
    out.print(shown)
    plain, best = found.reweighting[0], max(found.reweighting, key=lambda one: one.precision.p_at_1.mean)
    helps = best.precision.p_at_1.low > plain.precision.p_at_1.high
    note(f"It helps, at weight {best.weight:g}." if helps else "It does not help beyond the intervals.")


def _as_json(one: Reweighting) -> dict[str, Any]:
    return {"weight": one.weight, "precision": one.precision.to_dict()}
