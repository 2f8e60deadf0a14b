"""The JSON shapes of results, in the CLI and over HTTP alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ranker.types import Label, Ranked, Ranking, Response


def ranking_as_json(ranking: Ranking) -> dict[str, Any]:
    return {
        "context": list(ranking.context.turns),
        "confidence": ranking.confidence,
        "ranking": [_place_as_json(place) for place in ranking],
    }


def response_as_json(response: Response) -> dict[str, Any]:
    """`emotion` is the user's most probable one; `labels` are all that were predicted of the user. What
    belongs to a candidate is null for a generated reply."""
    candidate = response.candidate
    emotions = (label.name for label in response.labels if label.kind == "emotion")
    return {
        "text": response.text,
        "source": response.source,
        "confidence": response.confidence,
        "emotion": next(emotions, None),
        "labels": _labels_as_json(response.labels),
        "note": response.note,
        "pool": candidate.pool if candidate else None,
        "id": candidate.id if candidate else None,
        "ranking": [_place_as_json(place) for place in response.ranking or ()],
    }


def reply_as_json(response: Response) -> dict[str, Any]:
    """A response for where its ranking stands beside it."""
    return {
        "text": response.text,
        "source": response.source,
        "confidence": response.confidence,
        "note": response.note,
    }


def _place_as_json(place: Ranked) -> dict[str, Any]:
    candidate = place.candidate
    return {
        "rank": place.rank,
        "score": round(place.score, 4),
        "text": candidate.text,
        "pool": candidate.pool,
        "id": candidate.id,
        "labels": _labels_as_json(candidate.labels),
    }


def _labels_as_json(labels: Iterable[Label]) -> list[dict[str, Any]]:
    return [
        {"kind": label.kind, "name": label.name, "probability": round(label.probability, 4)}
        for label in labels
    ]
