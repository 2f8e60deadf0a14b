"""Safety on the way of every reply: models loaded when first needed, verdicts remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ranker.home import Home
from ranker.safety import Crisis, CrisisDetector, ReplyFilter, SafetySettings
from ranker.types import Context, Encoder, Vectors

_REMEMBERED = 1 << 16


class Guard:
    """For the texts and vectors of one encoder. Safe to share between threads.

    What its models raise on a missing or damaged file is not caught: who wants no safety turns it off.
    """

    def __init__(self, settings: SafetySettings, encoder: Encoder, home: Home) -> None:
        self._settings = settings
        self._encoder = encoder
        self._home = home
        self._loading = threading.Lock()
        self._replies: ReplyFilter | None = None
        self._crises: CrisisDetector | None = None
        # The same candidates come up again and again.
        self._known: dict[str, bool] = {}

    def crisis(self, context: Context, vector: Vectors) -> Crisis | None:
        """What the context signals that needs people rather than chit-chat; `vector` (1, dim) is its own."""
        with self._loading:
            if self._crises is None:
                self._crises = CrisisDetector.load(self._settings, home=self._home)
        return self._crises.detect(context, vector, self._encoder)

    def allows(self, text: str) -> bool:
        """Whether a reply may be shown."""
        return self._judge([text], self._encoder.encode_candidates([text]))[0]

    def allows_part(self, text: str) -> bool:
        """Whether the beginning of a reply may be shown: by its words alone, without the classifier."""
        return self._judge([text], None)[0]

    def first_allowed(
        self, texts: Sequence[str], vectors: Callable[[Sequence[int]], Vectors], wanted: int
    ) -> list[int]:
        """Places of the first `wanted` candidates that may be shown, or of all there are.

        `vectors` gives those of some places; it is asked only for texts that are new to this guard.
        """
        if len(self._known) > _REMEMBERED:
            self._known = {}  # another one, since threads may be reading the old one
        known = self._known
        found: list[int] = []
        for start in range(0, len(texts), wanted):
            places = range(start, min(start + wanted, len(texts)))
            unknown = [place for place in places if texts[place] not in known]
            if unknown:
                asked = [texts[place] for place in unknown]
                known.update(zip(asked, self._judge(asked, vectors(unknown)), strict=True))
            found += [place for place in places if known[texts[place]]]
            if len(found) >= wanted:
                break
        return found[:wanted]

    def _judge(self, texts: Sequence[str], vectors: Vectors | None) -> list[bool]:
        with self._loading:
            if self._replies is None:
                self._replies = ReplyFilter.load(self._settings, home=self._home)
        encoder = None if vectors is None else self._encoder
        return [verdict.is_safe for verdict in self._replies.verdicts(texts, vectors, encoder)]
