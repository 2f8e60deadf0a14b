"""How often safety is right: recall, false alarms and precision on labelled lines, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ranker.safety.crisis import CrisisDetector
from ranker.safety.labelled import LABELS, UNSAFE, Line, Task, texts_of
from ranker.safety.replies import ReplyFilter
from ranker.types import Encoder

_Z = 1.96


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total` in per cent, with Wilson's 95 % interval. Of nothing it is 0, from 0 to 100."""

    count: int
    total: int
    percent: float
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        if total == 0:
            return cls(0, 0, 0.0, 0.0, 100.0)
        share, square = count / total, _Z * _Z
        middle = (share + square / (2 * total)) / (1 + square / total)
        half = (
            _Z / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
        )
        return cls(count, total, 100 * share, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


@dataclass(frozen=True, slots=True)
class SafetyFigures:
    """Of one task. `recall`: found among those to be found, overall and by label; `false_alarms`: found among
    the harmless; `precision`: right among the found; `named`: with the right category among those."""

    task: str
    lines: int
    recall: Share
    recall_by_label: dict[str, Share]
    false_alarms: Share
    precision: Share
    named: Share | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def crisis_figures(
    detector: CrisisDetector, lines: Sequence[Line], encoder: Encoder | None = None
) -> SafetyFigures:
    """Of a detector on lines, each a context of one turn."""
    crises = [detector.detect(text, encoder=encoder) for text in texts_of(lines)]
    return figures_of("crisis", lines, [None if crisis is None else crisis.category for crisis in crises])


def offence_figures(
    replies: ReplyFilter, lines: Sequence[Line], encoder: Encoder | None = None
) -> SafetyFigures:
    """Of a filter on lines, each a reply."""
    verdicts = replies.verdicts(texts_of(lines), encoder=encoder)
    return figures_of("offence", lines, [None if verdict.is_safe else UNSAFE for verdict in verdicts])


def figures_of(task: Task, lines: Sequence[Line], found: Sequence[str | None]) -> SafetyFigures:
    """Figures of what was found in each line: a label, or None for harmless."""
    *labels, harmless = LABELS[task]
    rows = [(line.label, name) for line, name in zip(lines, found, strict=True)]
    alarms = [label for label, name in rows if name is not None]
    by_label = {
        wanted: Share.of(
            sum(name is not None for label, name in rows if label == wanted),
            sum(label == wanted for label, _ in rows),
        )
        for wanted in labels
    }
    hits = sum(share.count for share in by_label.values())
    return SafetyFigures(
        task=task,
        lines=len(rows),
        recall=Share.of(hits, sum(share.total for share in by_label.values())),
        recall_by_label=by_label,
        false_alarms=Share.of(alarms.count(harmless), sum(label == harmless for label, _ in rows)),
        precision=Share.of(hits, len(alarms)),
        named=Share.of(sum(label == name for label, name in rows), hits) if len(labels) > 1 else None,
    )
