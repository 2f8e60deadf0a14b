"""Figures of safety, beside numbers computed by hand."""

from __future__ import annotations

import pytest

from ranker.evaluation.safety import Share, figures_of
from ranker.safety.labelled import Line


def test_wilsons_interval() -> None:
    share = Share.of(8, 10)
    # (0.8 + 1.96^2/20 ± 1.96 sqrt(0.8*0.2/10 + 1.96^2/400)) / (1 + 1.96^2/10)
    assert share.percent == pytest.approx(80.0)
    assert share.low == pytest.approx(49.02, abs=0.01)
    assert share.high == pytest.approx(94.33, abs=0.01)
    assert Share.of(0, 0) == Share(0, 0, 0.0, 0.0, 100.0)
    assert Share.of(5, 5).high == pytest.approx(100.0)


def test_figures() -> None:
    lines = [
        Line("self-harm", "a"),
        Line("self-harm", "b"),
        Line("violence", "c"),
        Line("emergency", "d"),
        Line("none", "e"),
        Line("none", "f"),
    ]
    figures = figures_of("crisis", lines, ["self-harm", None, "emergency", "emergency", "violence", None])
    assert (figures.recall.count, figures.recall.total) == (3, 4)
    assert figures.recall_by_label["self-harm"].percent == pytest.approx(50.0)
    assert (figures.false_alarms.count, figures.false_alarms.total) == (1, 2)
    assert (figures.precision.count, figures.precision.total) == (3, 4)
    assert figures.named is not None
    assert (figures.named.count, figures.named.total) == (2, 3)
    assert figures.to_dict()["lines"] == 6


def test_nothing_found() -> None:
    figures = figures_of("offence", [Line("unsafe", "a"), Line("safe", "b")], [None, None])
    assert figures.recall.percent == 0.0
    assert figures.precision.total == 0
    assert figures.named is None
