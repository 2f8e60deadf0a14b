"""The ranker: a context in, ranked replies out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranker.bundle import Bundle
from ranker.encoders import load_encoder
from ranker.engine.answers import Draft, ReplyStream, complete
from ranker.engine.boosts import (
    Boosts,
    RowBonus,
    boosted_search,
    intent_bonus,
    intent_numbers,
    label_bonus,
)
from ranker.engine.emotions import EmotionDetector
from ranker.engine.fallback import DEFAULT_GENERATOR, FallbackSettings, When, decide, read_threshold, when_of
from ranker.engine.generator import BoundedGenerator, bounded
from ranker.engine.guard import Guard
from ranker.engine.indexes import DEFAULT_INDEX, Filters, allowed_rows, index_folder, require_labels
from ranker.engine.rules import diversify, is_echo, turn_words, words_of
from ranker.errors import InputError, IntegrityError
from ranker.home import Home
from ranker.labels import RESPONSE_INTENT, VectorHead, model_folder, read_head
from ranker.safety import SafetySettings
from ranker.types import (
    Candidate,
    Context,
    Encoder,
    Fallback,
    Label,
    Ranked,
    Ranking,
    Response,
    Vectors,
)

if TYPE_CHECKING:
    from ranker.generation import GenerationSettings

logger = logging.getLogger("ranker.engine")

_SAFE = SafetySettings()
_MARGIN = 16  # fetched beyond k, so that suppression seldom needs a second search


class _Hit(NamedTuple):
    """A candidate at a row of a bundle (by number). `score` includes `bonus`."""

    score: float
    candidate: Candidate
    bundle: int
    row: int
    bonus: float


class Ranker:
    """Ranks the candidates of one or more indexes. Immutable once open: safe to share between threads."""

    def __init__(
        self,
        bundles: Sequence[Bundle],
        encoder: Encoder,
        *,
        home: Home | None = None,
        generator: BoundedGenerator | None = None,
        guard: Guard | None = None,
    ) -> None:
        """From parts that are open already; without `guard` nothing is filtered. Most use `Ranker.open`."""
        if not bundles:
            raise InputError("a ranker needs at least one index")
        for bundle in bundles:
            bundle.require_encoder(encoder.fingerprint)
        self.bundles = tuple(bundles)
        self.encoder = encoder
        self.generator = generator
        self.guard = guard
        self._home = home or Home.find()
        self._loading = threading.Lock()
        self._detector: EmotionDetector | None = None
        self._predictor: VectorHead | None = None
        self._intents: list[NDArray[np.int16]] = []

    @classmethod
    def open(
        cls,
        *indexes: str,
        home: str | Path | Home | None = None,
        encoder: str | Path | Encoder | None = None,
        threads: int | None = None,
        generator: str | Path | Fallback | None = DEFAULT_GENERATOR,
        generation: GenerationSettings | None = None,
        limits: FallbackSettings | None = None,
        safety: SafetySettings | None = _SAFE,
    ) -> Ranker:
        """Open indexes by name, with the encoder that they were built with.

        Without a name: `ed`, from the home where it was built there, else the one embedded in the package.
        `generator` answers where nothing in the pool fits, in the way of `generation` and within `limits`; it
        is loaded when first needed, and where it is not installed, the pool answers. None: there is none.
        `safety` None, or not enabled: replies are not filtered, and a crisis is answered like anything else.
        Raises NotFoundError, IntegrityError or MismatchError, each naming the command that mends it.
        """
        place = home if isinstance(home, Home) else Home.find(home)
        roots = [index_folder(name, place) for name in dict.fromkeys(indexes or (DEFAULT_INDEX,))]
        bundles = [Bundle.open(root) for root in roots]
        if isinstance(encoder, str | Path | None):
            name = encoder or bundles[0].manifest.encoder_name
            encoder = load_encoder(name, home=place, threads=threads)
        return cls(
            bundles,
            encoder,
            home=place,
            generator=bounded(generator, place, limits, generation) if generator else None,
            guard=Guard(safety, encoder, place) if safety is not None and safety.enabled else None,
        )

    def rank(
        self,
        context: str | Iterable[str] | Context,
        k: int = 10,
        *,
        filters: Filters | None = None,
        boosts: Boosts | None = None,
        diversity: float = 0.0,
        keep_echoes: bool = False,
    ) -> Ranking:
        """The `k` best candidates for one context (fewer where fewer are allowed).

        `filters` leave candidates out; `boosts` move some up, and are part of the scores but not of the
        confidence. `diversity` in [0, 1] trades score for variety (maximal marginal relevance). Replies that
        repeat a turn of the context are left out unless `keep_echoes`.
        """
        return self.rank_many(
            [context], k, filters=filters, boosts=boosts, diversity=diversity, keep_echoes=keep_echoes
        )[0]

    def rank_many(
        self,
        contexts: Iterable[str | Iterable[str] | Context],
        k: int = 10,
        *,
        filters: Filters | None = None,
        boosts: Boosts | None = None,
        diversity: float = 0.0,
        keep_echoes: bool = False,
    ) -> list[Ranking]:
        """`rank` for many contexts at once: encoded and searched in batches."""
        given = [Context.of(context) for context in contexts]
        vectors = self.encoder.encode_contexts(given)
        return self.rank_vectors(
            given, vectors, k, filters=filters, boosts=boosts, diversity=diversity, keep_echoes=keep_echoes
        )

    def rank_vectors(
        self,
        contexts: Sequence[Context],
        vectors: Vectors,
        k: int = 10,
        *,
        filters: Filters | None = None,
        boosts: Boosts | None = None,
        diversity: float = 0.0,
        keep_echoes: bool = False,
    ) -> list[Ranking]:
        """`rank_many` for contexts that this ranker's encoder has encoded: `vectors` is (contexts, dim)."""
        if k < 1:
            raise InputError(f"k must be at least 1, not {k}")
        if not 0.0 <= diversity <= 1.0:
            raise InputError(f"diversity must be between 0 and 1, not {diversity}")
        chosen = filters or Filters()
        masks = allowed_rows(self.bundles, chosen)
        bonuses = self._bonuses(boosts or Boosts(), vectors)
        return [
            self._rank_one(context, vector[None], k, masks, bonus, chosen.blocked, diversity, keep_echoes)
            for context, vector, bonus in zip(contexts, vectors, bonuses, strict=True)
        ]

    def score(self, context: str | Iterable[str] | Context, texts: Sequence[str]) -> list[float]:
        """Score the caller's own candidates as replies to a context, in the order given."""
        if isinstance(texts, str):
            raise InputError("texts must be a list of replies, not one text")
        if not texts:
            return []
        vector = self.encoder.encode_contexts([Context.of(context)])[0]
        scores: NDArray[np.float32] = self.encoder.encode_candidates(texts) @ vector
        return [float(score) for score in scores]

    def respond(
        self,
        context: str | Iterable[str] | Context,
        *,
        fallback: When | str = "auto",
        filters: Filters | None = None,
        boosts: Boosts | None = None,
    ) -> Response:
        """One reply, with its source, its confidence and the user's three most probable emotions.

        `fallback` says when the generator answers: "never", "always", where the confidence is below a number,
        or "auto": below the threshold that was measured for this encoder and generator (never, where none
        was). Where it cannot, the best retrieved reply comes with a note of what happened.
        """
        given = Context.of(context)
        vector = self.encoder.encode_contexts([given])
        return self.respond_vector(given, vector, fallback=fallback, filters=filters, boosts=boosts)

    def respond_vector(
        self,
        context: Context,
        vector: Vectors,
        *,
        k: int = 10,
        fallback: When | str = "auto",
        filters: Filters | None = None,
        boosts: Boosts | None = None,
    ) -> Response:
        """`respond` for a context that this ranker's encoder has encoded: `vector` is (1, dim). The response
        comes with the `k` best."""
        return self.complete(
            self.draft(context, vector, k=k, fallback=fallback, filters=filters, boosts=boosts)
        )

    def draft(
        self,
        context: Context,
        vector: Vectors,
        *,
        k: int = 10,
        fallback: When | str = "auto",
        filters: Filters | None = None,
        boosts: Boosts | None = None,
    ) -> Draft:
        """The quick part of `respond_vector`: the pool's reply, and whether to ask the generator."""
        when = when_of(fallback)
        fixed = self._fixed(context, vector)
        if fixed is not None:
            return fixed
        ranking = self.rank_vectors([context], vector, k, filters=filters, boosts=boosts)[0]
        if not ranking:
            raise InputError("no candidate is allowed by the filters", fix="Loosen or drop a filter")
        return self._draft_of(ranking, when, self._emotion_detector().detect(context, vector))

    def draft_ranked(
        self, ranking: Ranking, vector: Vectors, *, fallback: When | str = "auto"
    ) -> Draft | None:
        """`draft` of a ranking of this ranker, without the user's emotions; None where it is empty."""
        when = when_of(fallback)
        fixed = self._fixed(ranking.context, vector)
        return fixed or (self._draft_of(ranking, when) if ranking else None)

    def complete(self, draft: Draft) -> Response:
        """The slow part, where the generator is to be asked."""
        return complete(draft, self.generator, self.guard)

    def stream(self, draft: Draft) -> ReplyStream:
        """`complete` in pieces, as they are made."""
        return ReplyStream(draft, self.generator, self.guard)

    def _fixed(self, context: Context, vector: Vectors) -> Draft | None:
        """The message that a crisis is answered with, before anything else."""
        crisis = self.guard.crisis(context, vector) if self.guard is not None else None
        return None if crisis is None else Draft.fixed(context, crisis)

    def _draft_of(self, ranking: Ranking, when: When, labels: tuple[Label, ...] = ()) -> Draft:
        name = self.generator.name if self.generator is not None else None
        decision = decide(when, ranking.confidence, name, lambda: self._threshold)
        return Draft.retrieved(ranking, decision, labels)

    @cached_property
    def _threshold(self) -> float | None:
        """What was measured for `auto`."""
        if self.generator is None:
            return None
        try:
            found = read_threshold(self.generator.source, self.encoder.fingerprint, self._home)
        except IntegrityError as error:
            logger.warning("auto never falls back, since its threshold cannot be read: %s", error)
            return None
        return None if found is None else found.threshold

    def _emotion_detector(self) -> EmotionDetector:
        """Loaded when first needed: ranking does without."""
        with self._loading:
            if self._detector is None:
                self._detector = EmotionDetector(self.encoder.fingerprint, self._home)
            return self._detector

    def _bonuses(self, boosts: Boosts, vectors: Vectors) -> Iterator[list[RowBonus | None]]:
        """For each of the contexts' vectors, the bonus of each bundle's rows."""
        require_labels(self.bundles, "emotion", boosts.emotions)
        require_labels(self.bundles, "intent", boosts.intents)
        by_row = [label_bonus(bundle, boosts) for bundle in self.bundles]
        most = [0.0 if rows is None else float(rows.max(initial=0.0)) for rows in by_row]
        head = self._intent_predictor() if boosts.response_intent else None
        for row in range(len(vectors)):
            if head is not None:
                likely = intent_bonus(head, vectors[row : row + 1], boosts.response_intent)
                yield [
                    RowBonus(rows, numbers, likely, highest + float(likely.max()))
                    for rows, numbers, highest in zip(by_row, self._intents, most, strict=True)
                ]
            else:
                yield [
                    None if rows is None else RowBonus(rows, highest=highest)
                    for rows, highest in zip(by_row, most, strict=True)
                ]

    def _intent_predictor(self) -> VectorHead:
        """Loaded when first asked for. Raises NotFoundError, or MismatchError for another encoder's."""
        with self._loading:
            if self._predictor is None:
                folder = model_folder(RESPONSE_INTENT, self._home)
                head = read_head(folder, encoder=self.encoder.fingerprint)
                self._intents = [intent_numbers(bundle, head.names) for bundle in self.bundles]
                self._predictor = head
            return self._predictor

    def _rank_one(
        self,
        context: Context,
        vector: Vectors,
        k: int,
        masks: Sequence[NDArray[np.bool_] | None],
        bonuses: Sequence[RowBonus | None],
        blocked: frozenset[str],
        diversity: float,
        keep_echoes: bool,
    ) -> Ranking:
        turns = [] if keep_echoes else turn_words(context)
        wanted = 4 * k if diversity else k
        fetched = wanted + _MARGIN
        while True:
            found = self._search(vector, fetched, masks, bonuses)
            fitting = [
                hit
                for hit in found
                if hit.candidate.id not in blocked and not is_echo(words_of(hit.candidate.text), turns)
            ]
            kept, refused = self._safe(fitting, wanted)
            if len(kept) >= wanted or len(found) < fetched:
                break
            fetched *= 4
        if diversity and kept:
            scores = np.array([hit.score for hit in kept], dtype=np.float32)
            vectors = np.concatenate([self.bundles[hit.bundle].vectors([hit.row]) for hit in kept])
            kept = [kept[place] for place in diversify(scores, vectors, k, diversity)]
        places = tuple(Ranked(hit.candidate, hit.score, rank) for rank, hit in enumerate(kept[:k], start=1))
        calibration = self.encoder.calibration
        confidence = None
        if calibration is not None:
            confidence = calibration.probability(kept[0].score - kept[0].bonus) if places else 0.0
        return Ranking(context, places, confidence, refused)

    def _safe(self, hits: list[_Hit], wanted: int) -> tuple[list[_Hit], int]:
        """The first `wanted` hits that may be said, or all there are, and how many among them may not."""
        if self.guard is None:
            return hits[:wanted], 0

        def vectors(places: Sequence[int]) -> Vectors:
            return np.concatenate([self.bundles[hits[at].bundle].vectors([hits[at].row]) for at in places])

        places = self.guard.first_allowed([hit.candidate.text for hit in hits], vectors, wanted)
        looked_at = places[-1] + 1 if len(places) == wanted else len(hits)
        return [hits[place] for place in places], looked_at - len(places)

    def _search(
        self,
        vector: Vectors,
        k: int,
        masks: Sequence[NDArray[np.bool_] | None],
        bonuses: Sequence[RowBonus | None],
    ) -> list[_Hit]:
        """The k best of all indexes together."""
        found: list[tuple[float, int, int, float]] = []
        for number, bundle in enumerate(self.bundles):
            hits, added = boosted_search(bundle, vector, k, masks[number], bonuses[number])
            found += [
                (float(score), number, int(row), float(bonus))
                for score, row, bonus in zip(hits.scores[0], hits.ids[0], added[0], strict=True)
            ]
        found.sort(key=lambda hit: (-hit[0], hit[1], hit[2]))
        return [
            _Hit(score, self.bundles[number].candidate(row), number, row, bonus)
            for score, number, row, bonus in found[:k]
        ]
