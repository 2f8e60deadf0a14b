"""What the commands about labels share: their data, and their figures as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ranker.cli.output import table
from ranker.errors import ConfigError
from ranker.evaluation.labels import LabelFigures


def path_of(data: dict[str, Path], name: str) -> Path:
    """The path given by `--data name=PATH`. Raises ConfigError where it was not."""
    if name not in data:
        raise ConfigError(f"the data of {name!r} is needed", fix=f"Add --data {name}=PATH")
    return data[name].expanduser()


def figures_as_json(figures: LabelFigures) -> dict[str, Any]:
    """All figures, with the confusion matrix as lists."""
    return asdict(figures) | {"confusion": figures.confusion.tolist()}


def figures_table(measured: dict[str, LabelFigures]) -> Any:
    """A table, one column for each set of rows."""
    shown = table("figure", *measured)
    sets = list(measured.values())
    shown.add_row("rows", *(f"{figures.rows:,}" for figures in sets))
    for name, attribute in (("top-1 %", "top_1"), ("top-3 %", "top_3"), ("top-5 %", "top_5")):
        shown.add_row(name, *(f"{getattr(figures, attribute):.1f}" for figures in sets))
    for name in ("macro", "weighted"):
        for part in ("precision", "recall", "f1"):
            shown.add_row(
                f"{name} {part} %",
                *(f"{100 * getattr(getattr(figures, name), part):.1f}" for figures in sets),
            )
    shown.add_row("calibration error %", *(f"{100 * figures.calibration_error:.1f}" for figures in sets))
    return shown
