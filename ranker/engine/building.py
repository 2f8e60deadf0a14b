"""From a raw corpus to an index on disk: corpus → candidates → cleaned pool → vectors → bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ranker.bundle import Bundle, PoolNote, add_candidates, write_bundle
from ranker.corpora import ReadReport, candidates, pairs, read_dialogues
from ranker.encoders import load_encoder
from ranker.engine.emotions import with_predicted_labels
from ranker.errors import CorpusError, InputError
from ranker.home import Home
from ranker.pools import CleaningReport, CleaningSettings, PoolCard, clean, load_card, raw_data
from ranker.types import Candidate, Encoder, Progress, Vectors, clean_text

_TUNING_CONTEXTS = 400
_TUNING_SPREAD = 37  # pairs from one chosen context to the next, so that they are of many conversations

Step = Callable[[str, int], Progress]
"""Opens a progress line called by the name, of so many rows, and returns what advances it."""


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did: for a person to read."""

    bundle: Bundle
    card: PoolCard
    is_sample: bool
    read: ReadReport
    cleaned: CleaningReport


def read_pool(
    name: str,
    home: Home,
    *,
    sample: bool = False,
    cleaning: CleaningSettings | None = None,
    limit: int | None = None,
) -> tuple[PoolCard, bool, list[Candidate], ReadReport, CleaningReport]:
    """A pool's cleaned candidates, from the home's raw data where it is there, else from the sample.

    Returns the card, whether it is the sample, the candidates and the two reports.
    """
    card = load_card(name, home)
    raw = raw_data(card, home, sample=sample)
    report = ReadReport()
    dialogues = read_dialogues(card.reader, raw.path, card.split, report)
    found = candidates(dialogues, pool=card.name, utterances=card.utterances)
    kept, cleaned = clean(found, cleaning or CleaningSettings())
    if not kept:
        raise CorpusError(f"no candidate of pool {name!r} is left after cleaning ({cleaned.summary()})")
    return card, raw.is_sample, with_predicted_labels(kept[:limit], home), report, cleaned


def build_index(
    name: str,
    encoder: Encoder,
    encoder_name: str,
    home: Home,
    *,
    sample: bool = False,
    kind: str | None = None,
    cleaning: CleaningSettings | None = None,
    limit: int | None = None,
    step: Step,
) -> Built:
    """Build the index of the pool `name` in the home. An old one answers until the new one is whole."""
    card, is_sample, kept, read, cleaned = read_pool(
        name, home, sample=sample, cleaning=cleaning, limit=limit
    )
    texts = [candidate.text for candidate in kept]
    vectors = encoder.encode_candidates(texts, step("encoding", len(texts)))
    bundle = write_bundle(
        home.indexes / name,
        name=name,
        candidates=kept,
        vectors=vectors,
        encoder_name=encoder_name,
        encoder_fingerprint=encoder.fingerprint,
        pools=[_note(card, is_sample)],
        kind=kind,
        sample=_context_vectors(card, home, encoder, sample=sample),
        progress=step("indexing", len(texts)),
    )
    return Built(bundle, card, is_sample, read, cleaned)


def add_texts(
    root: Path, texts: Sequence[str], home: Home, *, encoder_name: str | None = None
) -> tuple[int, CleaningReport]:
    """Add replies to the index at `root`, encoded as the others were. Returns how many were new, and what
    cleaning dropped. Raises InputError where none is new."""
    bundle = Bundle.open(root)
    encoder = load_encoder(encoder_name or bundle.manifest.encoder_name, home=home)
    pool = bundle.manifest.pools[0].name
    given = (Candidate(id=_added_id(pool, text), text=text, pool=pool) for text in map(clean_text, texts))
    kept, report = clean(given, CleaningSettings())
    known = {bundle.candidate(row).text for row in bundle.rows_of_texts({one.text for one in kept})}
    new = with_predicted_labels([one for one in kept if one.text not in known], home)
    if not new:
        raise InputError(f"nothing new to add to {root.name!r} ({report.summary()}, {len(known)} known)")
    vectors = encoder.encode_candidates([candidate.text for candidate in new])
    add_candidates(root, new, vectors, encoder_fingerprint=encoder.fingerprint)
    return len(new), report


def _context_vectors(card: PoolCard, home: Home, encoder: Encoder, *, sample: bool) -> Vectors | None:
    """Vectors of some contexts of the corpus, to tune an approximate index on; None where it has none."""
    raw = raw_data(card, home, sample=sample)
    found = pairs(read_dialogues(card.reader, raw.path, card.split, ReadReport()))
    contexts = [pair.context for pair in islice(found, 0, _TUNING_SPREAD * _TUNING_CONTEXTS, _TUNING_SPREAD)]
    return encoder.encode_contexts(contexts) if contexts else None


def _added_id(pool: str, text: str) -> str:
    """The same text always gets the same id."""
    return f"{pool}:added:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _note(card: PoolCard, is_sample: bool) -> PoolNote:
    """The sample is ours to give away: its licence is not that of the corpus."""
    licence = card.sample_licence if is_sample else card.licence
    return PoolNote(card.name, card.title, licence, card.commercial_use or is_sample, is_sample)
