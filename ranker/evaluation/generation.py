"""How well a generator replies: perplexity, likeness to the true reply, variety, emotion, time.

    perplexity    of the true replies, the end of a reply included, per token of the generator's own tokenizer
                  and per word of the plain text: the same total over two counts. Words are what whitespace
                  separates, so that the second figure compares generators whatever their tokenizers.
    AVG BLEU      of the decoded replies against the true ones (see `retrieval.bleu`)
    Distinct-n    different n-grams among all decoded replies over all their tokens (Li et al. 2016): it falls
                  as more replies are decoded, so compare at equal numbers
    similarity    mean cosine of decoded and true reply, both as candidates of an `Encoder`
    emotion       does the generator's own head find the conversation's emotion in the context?

The rows are taken in one seeded order: what is known after half of the time is of a random half of them.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ranker.corpora import Pair
from ranker.errors import GenerationError, InputError, MissingExtraError
from ranker.evaluation.retrieval import Bleu, bleu
from ranker.generation import LocalGenerator
from ranker.types import Context, Encoder, Fallback, Label, Progress, Reply

DISTINCT_SETUP = "different n-grams over all tokens, tokenisation 13a, lower-cased"
Ending = Literal["end", "length", "time", "refused"]
"""Why a reply ended: by itself, at a limit of length or time, or it was never given."""

_CHUNK = 64
_HOPELESS = 10
"""So many refusals before the first reply: it will not come."""


@runtime_checkable
class EmotionHead(Protocol):
    """A generator that also says what the user feels."""

    def emotions(self, contexts: Sequence[Context]) -> list[tuple[Label, ...]]:
        """Emotions of each context, most probable first."""
        ...


@dataclass(frozen=True, slots=True)
class Perplexity:
    per_token: float
    per_word: float
    tokens: int
    words: int
    rows: int
    tokenizer: str


@dataclass(frozen=True, slots=True)
class Distinct:
    """Shares within 0..1, set up as `DISTINCT_SETUP`."""

    one: float
    two: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a generator answered, in how many seconds; an empty text where it refused."""

    text: str
    seconds: float
    ending: Ending


@dataclass(frozen=True, slots=True)
class ReplyFigures:
    """Of decoded replies. Likeness, variety, length and time are of those that were given; `words` is the
    mean length. `limited` (stopped by a limit) and `refused` are per cent of all rows."""

    bleu: Bleu
    distinct: Distinct
    similarity: float
    words: float
    seconds_p50: float
    seconds_p99: float
    limited: float
    refused: float
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bleu": {"average": self.bleu.average, "orders": list(self.bleu.orders)}}


@dataclass(frozen=True, slots=True)
class EmotionAccuracy:
    """Per cent of contexts whose most probable emotion is that of their conversation."""

    accuracy: float
    rows: int


@dataclass(frozen=True, slots=True)
class GenerationFigures:
    """What was measured; None: the generator cannot do it, or the measuring was interrupted before."""

    perplexity: Perplexity | None
    replies: ReplyFigures | None
    emotion: EmotionAccuracy | None
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "perplexity": None if self.perplexity is None else asdict(self.perplexity),
            "replies": None if self.replies is None else self.replies.to_dict(),
            "emotion": None if self.emotion is None else asdict(self.emotion),
            "interrupted": self.interrupted,
        }


class Steps(Protocol):
    """Opens a step of a long job by its name and size."""

    def __call__(self, name: str, total: int) -> Progress: ...


@dataclass(slots=True)
class _Known:
    """What an interrupted measuring still knows, row by row in the seeded order."""

    likelihoods: list[tuple[float, int]] = field(default_factory=list)
    emotions: list[tuple[Label, ...]] = field(default_factory=list)
    replies: list[Decoded] = field(default_factory=list)


def measure_generation(
    generator: Fallback,
    encoder: Encoder,
    pairs: Sequence[Pair],
    *,
    decoded: int,
    step: Steps,
    seed: int = 0,
) -> GenerationFigures:
    """Perplexity and emotion over all `pairs`, and the figures of `decoded` replies to some of them.

    Ctrl-C ends it with what is known so far, if anything is. Raises InputError without pairs, GenerationError
    where the generator does not work at all, MissingExtraError without sacrebleu.
    """
    if not pairs:
        raise InputError("there is no row to measure generation on")
    _tokenizer()  # missing after an hour of decoding would be late
    rows = random.Random(seed).sample(list(pairs), len(pairs))
    known = _Known()
    interrupted = False
    try:
        if isinstance(generator, LocalGenerator):
            generator.load()  # before replies are timed
            advance = step("perplexity", len(rows))
            for chunk in _chunks(rows):
                known.likelihoods += generator.loglikelihood(chunk)
                advance(len(known.likelihoods), len(rows))
        labelled = [row for row in rows if _emotion(row)]
        if isinstance(generator, EmotionHead) and labelled:
            advance = step("emotions", len(labelled))
            for chunk in _chunks(labelled):
                known.emotions += generator.emotions([row.context for row in chunk])
                advance(len(known.emotions), len(labelled))
        chosen = rows[:decoded]
        advance = step("replies", len(chosen))
        for reply in decode(generator, [row.context for row in chosen]):
            known.replies.append(reply)
            advance(len(known.replies), len(chosen))
    except KeyboardInterrupt:
        if known == _Known():
            raise
        interrupted = True
    return _figures(generator, encoder, rows, known, interrupted)


def _figures(
    generator: Fallback, encoder: Encoder, rows: Sequence[Pair], known: _Known, interrupted: bool
) -> GenerationFigures:
    texts = [row.response for row in rows]
    found_perplexity = emotion = replies = None
    if known.likelihoods and isinstance(generator, LocalGenerator):
        measured = texts[: len(known.likelihoods)]
        found_perplexity = perplexity(known.likelihoods, measured, generator.tokenizer_name)
    if known.emotions:
        truths = [_emotion(row) for row in rows if _emotion(row)]
        emotion = emotion_accuracy(known.emotions, truths[: len(known.emotions)])
    if any(reply.text for reply in known.replies):
        replies = reply_figures(known.replies, texts[: len(known.replies)], encoder)
    return GenerationFigures(found_perplexity, replies, emotion, interrupted)


def decode(generator: Fallback, contexts: Sequence[Context]) -> Iterator[Decoded]:
    """One reply to each context, without hints.

    Raises GenerationError where the first replies are all refused: a generator that is down.
    """
    given = 0
    for place, context in enumerate(contexts):
        began = time.perf_counter()
        try:
            reply = generator.reply(context)
        except GenerationError:
            if not given and place + 1 >= min(_HOPELESS, len(contexts)):
                raise
            yield Decoded("", time.perf_counter() - began, "refused")
            continue
        given += 1
        yield Decoded(reply.text, time.perf_counter() - began, _ending(reply))


def perplexity(
    likelihoods: Sequence[tuple[float, int]], replies: Sequence[str], tokenizer: str
) -> Perplexity:
    """From the log probability and number of tokens of each reply.

    Raises GenerationError where a generator claims what cannot be, InputError where there is no row.
    """
    if not replies or len(likelihoods) != len(replies):
        raise InputError(f"{len(likelihoods)} likelihoods cannot be measured against {len(replies)} replies")
    for (logarithm, tokens), reply in zip(likelihoods, replies, strict=True):
        if not math.isfinite(logarithm) or logarithm > 0 or tokens < 1:
            raise GenerationError(
                f"the generator gives {reply[:60]!r} a log probability of {logarithm} over {tokens} tokens"
            )
    total = -math.fsum(logarithm for logarithm, _ in likelihoods)
    tokens = sum(count for _, count in likelihoods)
    words = sum(map(word_count, replies))
    return Perplexity(
        per_token=math.exp(total / tokens),
        per_word=math.exp(total / words),
        tokens=tokens,
        words=words,
        rows=len(replies),
        tokenizer=tokenizer,
    )


def word_count(text: str) -> int:
    """How many words `text` has: what whitespace separates, punctuation belonging to its word."""
    return len(text.split())


def reply_figures(decoded: Sequence[Decoded], references: Sequence[str], encoder: Encoder) -> ReplyFigures:
    """The figures of `decoded` replies; `references[i]` is the true one for `decoded[i]`.

    Raises InputError where no reply was given.
    """
    rows = [row for row in zip(decoded, references, strict=True) if row[0].text]
    if not rows:
        raise InputError("not one reply was given")
    texts, golds = [reply.text for reply, _ in rows], [gold for _, gold in rows]
    seconds = np.array([reply.seconds for reply, _ in rows])
    endings = [reply.ending if reply.text else "refused" for reply in decoded]
    return ReplyFigures(
        bleu=bleu(texts, golds),
        distinct=distinct(texts),
        similarity=similarity(encoder, texts, golds),
        words=sum(map(word_count, texts)) / len(texts),
        seconds_p50=float(np.percentile(seconds, 50)),
        seconds_p99=float(np.percentile(seconds, 99)),
        limited=100 * (endings.count("length") + endings.count("time")) / len(decoded),
        refused=100 * endings.count("refused") / len(decoded),
        rows=len(decoded),
    )


def distinct(replies: Sequence[str]) -> Distinct:
    """Distinct-1 and Distinct-2. No pair of words spans two replies. Raises MissingExtraError."""
    tokenize = _tokenizer()
    total = 0
    words: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for reply in replies:
        tokens = tokenize(reply.lower()).split()
        total += len(tokens)
        words.update(tokens)
        pairs.update(itertools.pairwise(tokens))
    return Distinct(len(words) / total, len(pairs) / total) if total else Distinct(0.0, 0.0)


def similarity(encoder: Encoder, replies: Sequence[str], references: Sequence[str]) -> float:
    """Mean cosine of each reply and its reference, both encoded as candidates."""
    found = encoder.encode_candidates(list(replies))
    wanted = encoder.encode_candidates(list(references))
    return float(np.einsum("ij,ij->i", found, wanted).mean())


def emotion_accuracy(predicted: Sequence[tuple[Label, ...]], truths: Sequence[str]) -> EmotionAccuracy:
    """A row without a prediction counts as wrong. Raises InputError where there is no row."""
    if not truths or len(predicted) != len(truths):
        raise InputError(f"{len(predicted)} predictions cannot be measured against {len(truths)} truths")
    right = sum(
        bool(labels) and labels[0].name == truth for labels, truth in zip(predicted, truths, strict=True)
    )
    return EmotionAccuracy(100 * right / len(truths), len(truths))


def _tokenizer() -> Any:
    try:
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    except ImportError as error:
        raise MissingExtraError.of("measuring generation", "train") from error
    return Tokenizer13a()


def _ending(reply: Reply) -> Ending:
    details = reply.details
    # The second is what endpoints call it.
    stopped = details.get("stopped", details.get("finish_reason", ""))
    return "length" if stopped == "length" else "time" if stopped == "time" else "end"


def _emotion(pair: Pair) -> str:
    """The conversation's emotion, empty where the corpus gives none."""
    return next((label.name for label in pair.labels if label.kind == "emotion"), "")


def _chunks(rows: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]
