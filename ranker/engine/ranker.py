"""The ranker: a context in, ranked replies out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranker.bundle import Bundle
from ranker.encoders import load_encoder
from ranker.engine.boosts import (
    Boosts,
    RowBonus,
    boosted_search,
    intent_bonus,
    intent_numbers,
    label_bonus,
)
from ranker.engine.emotions import EmotionDetector
from ranker.engine.rules import diversify, is_echo, turn_words, words_of
from ranker.errors import InputError, NotFoundError
from ranker.home import EMBEDDED, Home
from ranker.labels import RESPONSE_INTENT, VectorHead, model_folder, read_head
from ranker.storage import is_published
from ranker.types import Candidate, Context, Encoder, LabelKind, Ranked, Ranking, Response, Vectors

DEFAULT_INDEX = "ed"
_LOW_CONFIDENCE = 0.5
_MARGIN = 16  # fetched beyond k, so that suppression seldom needs a second search


@dataclass(frozen=True, slots=True)
class Filters:
    """Which candidates may be ranked at all; an empty field allows everything."""

    pools: tuple[str, ...] = ()
    emotions: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    commercial_only: bool = False
    blocked: frozenset[str] = frozenset()
    """Ids of candidates that may not be ranked, such as reported ones."""


def index_folder(name: str, home: Home) -> Path:
    """Where the index `name` is: in the home, else among those embedded in the package."""
    embedded = Home(EMBEDDED)
    for place in (home, embedded):
        if is_published(place.indexes / name):
            return place.indexes / name
    known = {*index_names(home), *index_names(embedded)}
    raise NotFoundError.of("index", name, known, fix=f"To build it: ranker build-index --pool {name}")


def index_names(home: Home) -> list[str]:
    """Names of the indexes built in a home."""
    if not home.indexes.is_dir():
        return []
    return sorted(folder.name for folder in home.indexes.iterdir() if is_published(folder))


class _Hit(NamedTuple):
    """A candidate at a row of a bundle (by number). `score` includes `bonus`."""

    score: float
    candidate: Candidate
    bundle: int
    row: int
    bonus: float


class Ranker:
    """Ranks the candidates of one or more indexes. Immutable once open: safe to share between threads."""

    def __init__(self, bundles: Sequence[Bundle], encoder: Encoder, *, home: Home | None = None) -> None:
        if not bundles:
            raise InputError("a ranker needs at least one index")
        for bundle in bundles:
            bundle.require_encoder(encoder.fingerprint)
        self.bundles = tuple(bundles)
        self.encoder = encoder
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
    ) -> Ranker:
        """Open indexes by name, with the encoder that they were built with.

        Without a name: `ed`, from the home where it was built there, else the one embedded in the package.
        Raises NotFoundError, IntegrityError or MismatchError, each naming the command that mends it.
        """
        place = home if isinstance(home, Home) else Home.find(home)
        roots = [index_folder(name, place) for name in dict.fromkeys(indexes or (DEFAULT_INDEX,))]
        bundles = [Bundle.open(root) for root in roots]
        if isinstance(encoder, str | Path | None):
            name = encoder or bundles[0].manifest.encoder_name
            encoder = load_encoder(name, home=place, threads=threads)
        return cls(bundles, encoder, home=place)

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
        masks = self._masks(chosen)
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
        filters: Filters | None = None,
        boosts: Boosts | None = None,
    ) -> Response:
        """One reply, with its source, its confidence and the user's three most probable emotions."""
        given = Context.of(context)
        vector = self.encoder.encode_contexts([given])
        return self.respond_vector(given, vector, filters=filters, boosts=boosts)

    def respond_vector(
        self,
        context: Context,
        vector: Vectors,
        *,
        k: int = 10,
        filters: Filters | None = None,
        boosts: Boosts | None = None,
    ) -> Response:
        """`respond` for a context that this ranker's encoder has encoded: `vector` is (1, dim). The response
        comes with the `k` best."""
        ranking = self.rank_vectors([context], vector, k, filters=filters, boosts=boosts)[0]
        if not ranking:
            raise InputError("no candidate is allowed by the filters", fix="Loosen or drop a filter")
        best = ranking[0].candidate
        unsure = ranking.confidence is not None and ranking.confidence < _LOW_CONFIDENCE
        note = "nothing in the pool fits well: low confidence" if unsure else ""
        emotions = self._emotion_detector().detect(context, vector)
        return Response(best.text, "retrieved", ranking.confidence, best, ranking, emotions, note)

    def _emotion_detector(self) -> EmotionDetector:
        """Loaded when first needed: ranking does without."""
        with self._loading:
            if self._detector is None:
                self._detector = EmotionDetector(self.encoder.fingerprint, self._home)
            return self._detector

    def _bonuses(self, boosts: Boosts, vectors: Vectors) -> Iterator[list[RowBonus | None]]:
        """For each of the contexts' vectors, the bonus of each bundle's rows."""
        self._require_labels("emotion", boosts.emotions)
        self._require_labels("intent", boosts.intents)
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

    def _masks(self, filters: Filters) -> list[NDArray[np.bool_] | None]:
        known = {pool.name for bundle in self.bundles for pool in bundle.manifest.pools}
        for pool in filters.pools:
            if pool not in known:
                raise NotFoundError.of("pool", pool, known, fix="It must be part of an index that is open")
        self._require_labels("emotion", filters.emotions)
        self._require_labels("intent", filters.intents)
        return [
            bundle.mask(
                pools=filters.pools or None,
                emotions=filters.emotions or None,
                intents=filters.intents or None,
                licences=filters.licences or None,
                commercial_only=filters.commercial_only,
            )
            for bundle in self.bundles
        ]

    def _require_labels(self, kind: LabelKind, names: Sequence[str]) -> None:
        if not names:
            return
        known = {name for bundle in self.bundles for name in bundle.labels(kind)}
        for name in names:
            if name not in known:
                raise NotFoundError.of(kind, name, known)

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
            kept = [
                hit
                for hit in found
                if hit.candidate.id not in blocked and not is_echo(words_of(hit.candidate.text), turns)
            ]
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
        return Ranking(context, places, confidence)

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
