"""The ranker that answers now, replaced while it answers when an index has a new version."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from ranker.bundle import Bundle
from ranker.encoders import load_encoder
from ranker.engine import DEFAULT_INDEX, Ranker, index_folder
from ranker.engine.guard import Guard
from ranker.errors import RankerError
from ranker.home import Home
from ranker.server.metrics import Metrics
from ranker.server.settings import ServerSettings
from ranker.storage import current
from ranker.types import Fallback

logger = logging.getLogger("ranker.server")

_PROBE = "I finally got promoted at work!"


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool of an open index, and how many of its candidates can be found."""

    name: str
    title: str
    licence: str
    commercial_use: bool
    is_sample: bool
    index: str
    candidates: int


class LiveRanker:
    """Holds the open ranker. `ranker` may be read from any thread: a reader keeps what it got, and the old
    version stays usable until its last reader is done."""

    def __init__(self, ranker: Ranker, settings: ServerSettings, home: Home, metrics: Metrics) -> None:
        """Use `LiveRanker.open`."""
        self._settings = settings
        self._home = home
        self._metrics = metrics
        self._refused: tuple[Path, ...] = ()
        self._use(ranker)

    @classmethod
    def open(
        cls, settings: ServerSettings, home: Home, metrics: Metrics, generator: Fallback | None = None
    ) -> LiveRanker:
        """`generator` is asked in place of the settings' own. Raises what `Ranker.open` raises."""
        ranker = Ranker.open(
            *settings.indexes,
            home=home,
            encoder=settings.encoder,
            threads=settings.threads_per_worker(),
            generator=generator or settings.fallback.generator or None,
            generation=settings.generation,
            limits=settings.fallback,
            safety=settings.safety,
        )
        # The first answer is slow (label and safety models are loaded): let no caller be the one who waits.
        ranker.respond(_PROBE, fallback="never")
        return cls(ranker, settings, home, metrics)

    @property
    def ranker(self) -> Ranker:
        return self._ranker

    @property
    def pools(self) -> tuple[PoolFacts, ...]:
        return self._pools

    async def watch(self) -> None:
        """Look for new versions until cancelled."""
        while self._settings.reload_seconds:
            await asyncio.sleep(self._settings.reload_seconds)
            await asyncio.to_thread(self.reload)

    def reload(self) -> bool:
        """Where an index has a new version: open it beside, try it, swap. What cannot be opened is left, and
        the old version goes on answering. Returns whether it swapped."""
        versions = self._versions()
        if versions in (self._refused, tuple(bundle.folder for bundle in self._ranker.bundles)):
            return False
        try:
            ranker = self._opened_beside()
        except Exception as error:  # whatever is wrong with the new version, the old one answers
            self._refused = versions
            self._metrics.reloads.labels("refused").inc()
            logger.error("a new version of an index was refused, the old one goes on: %s", error)
            return False
        self._use(ranker)
        self._metrics.reloads.labels("done").inc()
        logger.info(
            "now answering from a new version: %d candidates", sum(pool.candidates for pool in self._pools)
        )
        return True

    def _versions(self) -> tuple[Path, ...]:
        """The folders that the pointers lead to now; the ones in use where a pointer cannot be followed."""
        in_use = tuple(bundle.folder for bundle in self._ranker.bundles)
        found = []
        with contextlib.suppress(RankerError):
            for name in dict.fromkeys(self._settings.indexes or (DEFAULT_INDEX,)):
                root = index_folder(name, self._home)
                found.append(current(root) or root)
            return tuple(found)
        return in_use

    def _opened_beside(self) -> Ranker:
        settings, encoder, guard = self._settings, self._ranker.encoder, self._ranker.guard
        roots = [
            index_folder(name, self._home) for name in dict.fromkeys(settings.indexes or (DEFAULT_INDEX,))
        ]
        bundles = [Bundle.open(root, verify="full") for root in roots]
        if any(bundle.manifest.encoder_fingerprint != encoder.fingerprint for bundle in bundles):
            name = settings.encoder or bundles[0].manifest.encoder_name
            encoder = load_encoder(name, home=self._home, threads=settings.threads_per_worker())
            guard = None if guard is None else Guard(settings.safety, encoder, self._home)
        # The generator does not belong to an index: it stays loaded.
        ranker = Ranker(bundles, encoder, home=self._home, generator=self._ranker.generator, guard=guard)
        ranker.respond(_PROBE, fallback="never")
        return ranker

    def _use(self, ranker: Ranker) -> None:
        self._pools = tuple(fact for bundle in ranker.bundles for fact in _facts(bundle))
        self._ranker = ranker
        self._metrics.candidates.set(sum(bundle.count for bundle in ranker.bundles))


def _facts(bundle: Bundle) -> list[PoolFacts]:
    found = []
    for note in bundle.manifest.pools:
        mask = bundle.mask(pools=(note.name,))
        count = bundle.count if mask is None else int(mask[bundle.kept_rows()].sum())
        found.append(
            PoolFacts(
                note.name,
                note.title,
                note.licence,
                note.commercial_use,
                note.is_sample,
                bundle.manifest.name,
                count,
            )
        )
    return found
