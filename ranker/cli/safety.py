"""`ranker train-safety` and `ranker evaluate safety`: fit the classifiers of safety, and measure it all."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, out, print_json, steps, table, wants_json
from ranker.config import settings as read_settings
from ranker.encoders import load_encoder
from ranker.evaluation.safety import SafetyFigures, Share, crisis_figures, figures_of, offence_figures
from ranker.safety import CrisisDetector, ReplyFilter, SafetySettings
from ranker.safety.labelled import LABELS, LINES, Line, Task, check_lines, texts_of, tuning_lines
from ranker.safety.store import Manifest, write_classifier
from ranker.safety.training import FitSettings
from ranker.training.safety import Trained, harmless, ordinary_turns, train

_TITLES = {"crisis": "The crisis detector", "offence": "The reply filter"}
EncoderOption = Annotated[
    str | None, typer.Option(help="An encoder by name or folder.", show_default="the embedded one")
]
LinesOption = Annotated[
    Path | None,
    typer.Option("--lines", help="A folder of lines of your own.", show_default="the package's"),
]


def train_safety(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The models' folder.", show_default="models/safety of the home"),
    ] = None,
    encoder: EncoderOption = None,
    lines: LinesOption = None,
    as_json: JsonOption = None,
) -> None:
    """Fit the classifiers of the crisis detector and the reply filter, for the vectors of an encoder.

    The ordinary turns beside the lines come from the pools' samples. The same lines, samples and encoder give
    the same models. Shown are the figures of classifier and patterns together, on lines that the classifier
    was not fitted to (cross-validation); the patterns have seen them all.

    Example:

      ranker train-safety --encoder my-encoder
    """
    home = home_of(ctx)
    target = folder.expanduser() if folder is not None else home.models / "safety"
    made = load_encoder(encoder, home=home)
    turns = ordinary_turns(home)
    found = []
    with steps() as step:
        for task in LABELS:
            rows = tuning_lines(task, lines or LINES)
            ordinary = harmless(task, turns)
            name = f"{task}: {len(rows):,} lines and {len(ordinary):,} ordinary turns"
            advance = step(name, len(rows) + len(ordinary))
            trained = train(task, rows, ordinary, made, FitSettings(), advance)
            figures = _cross_validation(task, rows, trained)
            write_classifier(
                target / task, _manifest(task, rows, len(ordinary), trained, figures), trained.model
            )
            found.append(figures)
    _show(found, as_json)
    note(f"The safety models are in {target}.")


def evaluate_safety(
    ctx: typer.Context,
    encoder: EncoderOption = None,
    lines: LinesOption = None,
    as_json: JsonOption = None,
) -> None:
    """Measure the crisis detector and the reply filter on lines that they have never seen.

    Example:

      ranker evaluate safety
    """
    home = home_of(ctx)
    chosen = read_settings(SafetySettings, "safety", file=home.config_file)
    made = load_encoder(encoder, home=home)
    detector, replies = CrisisDetector.load(chosen, home=home), ReplyFilter.load(chosen, home=home)
    if not (detector.reads(made) and replies.reads(made)):
        note("The classifiers were fitted to another encoder: only patterns count. Run: ranker train-safety")
    folder = lines or LINES
    found = [
        crisis_figures(detector, check_lines("crisis", folder), made),
        offence_figures(replies, check_lines("offence", folder), made),
    ]
    _show(found, as_json)


def _cross_validation(task: Task, lines: list[Line], trained: Trained) -> SafetyFigures:
    """Figures of the patterns together with a classifier that was fitted without the line in question."""
    chosen = SafetySettings()
    texts = texts_of(lines)
    if task == "crisis":
        detector = CrisisDetector(trained.model)
        plain = [detector.detect(text) is not None for text in texts]
        threshold = chosen.crisis_threshold
    else:
        plain = [not verdict.is_safe for verdict in ReplyFilter(trained.model).verdicts(texts)]
        threshold = chosen.reply_threshold
    # Which kind it is plays no part: any label will do.
    found = [LABELS[task][0] if yes else None for yes in np.array(plain) | (trained.held_out >= threshold)]
    return replace(figures_of(task, lines, found), named=None)


def _manifest(
    task: Task, lines: list[Line], ordinary: int, trained: Trained, figures: SafetyFigures
) -> Manifest:
    text = "\n".join(f"{line.label}\t{line.text}" for line in lines)
    shares = (("recall", figures.recall), ("false alarms", figures.false_alarms))
    return Manifest(
        task=task,
        outputs=trained.model.outputs,
        encoder=trained.model.encoder,
        dim=trained.model.dim,
        gamma=trained.model.gamma,
        lines=len(lines),
        lines_sha256=hashlib.sha256(text.encode()).hexdigest(),
        ordinary=ordinary,
        settings=", ".join(f"{name} {value}" for name, value in asdict(trained.settings).items()),
        figures=tuple(f"{name} {share.percent:.1f} % ({_of(share)})" for name, share in shares),
    )


def _show(found: list[SafetyFigures], as_json: bool | None) -> None:
    for figures in found:
        if wants_json(as_json):
            print_json(figures.to_dict())
            continue
        made = table("figure", "per cent (95 % interval)", "lines", title=_TITLES[figures.task])
        rows = {"recall": figures.recall}
        if len(figures.recall_by_label) > 1:
            rows |= {f"  {label}": share for label, share in figures.recall_by_label.items()}
        rows |= {"false alarms": figures.false_alarms, "precision": figures.precision}
        if figures.named is not None:
            rows["right category"] = figures.named
        for name, share in rows.items():
            made.add_row(name, f"{share.percent:.1f} ({share.low:.1f} to {share.high:.1f})", _of(share))
        out.print(made)


def _of(share: Share) -> str:
    return f"{share.count:,} of {share.total:,}"
