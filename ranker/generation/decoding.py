"""From the probabilities of the next token to a reply: beam search in diverse groups, and sampling.

Everything here works on numbers: a model is a `Step`. Three limits hold: the tokens of a reply, its time, and
no run of tokens twice. Probabilities are natural logarithms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ranker.errors import GenerationError
from ranker.generation.settings import GenerationSettings

LogProbs = NDArray[np.float32]
"""(rows, vocabulary): the log probability of each token as the next one of each row."""

Step = Callable[[Sequence[int], Sequence[int]], LogProbs]
"""`step(parents, tokens)`: row i of the result is what follows where row parents[i] of the last call goes on
with tokens[i]. The first call has one row, parent 0 and the token that the reply starts from."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Token ids: what a reply starts from, what ends it, and what it must never hold."""

    start: int
    ends: frozenset[int]
    banned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A possible reply. `tokens` are without the end; `log_probability` is with it, where it is finished."""

    tokens: tuple[int, ...]
    log_probability: float
    finished: bool
    group: int = 0

    def score(self, length_penalty: float) -> float:
        """What beams are compared by: larger is better. The end counts as a token."""
        length = len(self.tokens) + self.finished
        return self.log_probability / float(max(length, 1) ** length_penalty)


def deadline_of(settings: GenerationSettings) -> float:
    """When a reply that begins now must be whole, on the clock of `time.monotonic`."""
    return time.monotonic() + settings.max_seconds


def repeated(tokens: Sequence[int], n: int) -> set[int]:
    """The tokens that would complete a run of `n` tokens which is in `tokens` already; none for n = 0."""
    if n < 1 or len(tokens) < n:
        return set()
    tail = tuple(tokens[len(tokens) - n + 1 :])
    return {tokens[i + n - 1] for i in range(len(tokens) - n + 1) if tuple(tokens[i : i + n - 1]) == tail}


def narrowed(log_probs: LogProbs, *, top_k: int = 0, top_p: float = 1.0) -> LogProbs:
    """(vocabulary,) with all but the k most probable tokens at -inf, and of these all but the fewest that
    together have the share `top_p` of their probability: at least one. Of equals, the lower id stays."""
    kept = np.argsort(-log_probs, kind="stable")
    if top_k:
        kept = kept[:top_k]
    if top_p < 1:
        shares = _probabilities(log_probs[kept])
        # A token stays while those before it fall short of top_p, so that the first always does.
        kept = kept[: max(1, int(np.sum(np.cumsum(shares) - shares < top_p)))]
    result = np.full_like(log_probs, -np.inf)
    result[kept] = log_probs[kept]
    return result


def sample(step: Step, ends: Ends, settings: GenerationSettings, deadline: float) -> Iterator[int]:
    """Tokens drawn one by one, without the end, by temperature, then top-k, then nucleus.

    Stops at the end or after `max_tokens`. Raises GenerationError, after the tokens it had, where `deadline`
    passes first: half a sentence is no reply.
    """
    random = np.random.default_rng(settings.seed)
    tokens: list[int] = []
    last = ends.start
    while len(tokens) < settings.max_tokens:
        _check_time(deadline, settings)
        row = _allowed(step([0], [last])[0], tokens, ends, settings.repeat_ngram)
        if not np.isfinite(row).any():
            return
        row = narrowed(row / settings.temperature, top_k=settings.top_k, top_p=settings.top_p)
        last = int(random.choice(len(row), p=_probabilities(row)))
        if last in ends.ends:
            return
        tokens.append(last)
        yield last


def diverse_beam_search(
    step: Step, ends: Ends, settings: GenerationSettings, deadline: float
) -> list[Hypothesis]:
    """Possible replies, best first, of equally many beams in each group; finished ones before others.

    At each step the groups choose in turn, and a token loses `diversity_penalty` for each beam of an earlier
    group that chose it at this step (Hamming diversity, Vijayakumar et al. 2016). The penalty steers the
    choice only: hypotheses are compared by their own probability, normalised by length. A group is done
    with as many finished hypotheses as it has beams, once none that goes on is better than they are.

    Where `deadline` passes, what is finished is returned; GenerationError where nothing is.
    """
    groups = [_Group(number, settings) for number in range(settings.groups)]
    rows = step([0], [ends.start])
    for _ in range(settings.max_tokens):
        taken = np.zeros(rows.shape[1], np.float32)
        for group in groups:
            group.advance(rows, taken, ends)
        running = [beam for group in groups for beam in group.running]
        if not running or (time.monotonic() >= deadline and any(group.finished for group in groups)):
            break
        _check_time(deadline, settings)
        rows = step([beam.row for beam in running], [beam.tokens[-1] for beam in running])
        for row, beam in enumerate(running):
            beam.row = row
    found = [hypothesis for group in groups for hypothesis in group.hypotheses()]
    return sorted(found, key=lambda one: (not one.finished, -one.score(settings.length_penalty)))


@dataclass(slots=True)
class _Beam:
    """A reply that goes on. `row` is its place in the last step's result, or its parent's until the next."""

    tokens: tuple[int, ...]
    log_probability: float
    row: int


@dataclass(slots=True)
class _Group:
    """Some of the beams, which choose together."""

    number: int
    settings: GenerationSettings
    running: list[_Beam] = field(default_factory=lambda: [_Beam((), 0.0, 0)])
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, rows: LogProbs, taken: NDArray[np.float32], ends: Ends) -> None:
        """Go on with the best continuations of the running beams. `taken` counts how often earlier groups
        chose each token at this step, and is added to."""
        if not self.running:
            return
        totals = np.stack(
            [
                beam.log_probability + _allowed(rows[beam.row], beam.tokens, ends, self.settings.repeat_ngram)
                for beam in self.running
            ]
        )
        width = self.settings.beams // self.settings.groups
        steered = totals - self.settings.diversity_penalty * taken
        before, self.running = self.running, []
        # Enough places that the ends cannot take all; an end below the first `width` places is not worth it.
        for rank, (row, token) in enumerate(_best(steered, width * (1 + len(ends.ends)))):
            beam, total = before[row], float(totals[row, token])
            if token in ends.ends:
                if rank < width:
                    self.finished.append(Hypothesis(beam.tokens, total, True, self.number))
            elif len(self.running) < width:
                self.running.append(_Beam((*beam.tokens, token), total, beam.row))
                taken[token] += 1
        self.finished = sorted(self.finished, key=self._score, reverse=True)[:width]
        if len(self.finished) == width and self._score(self.finished[-1]) >= max(
            map(self._score, self._unfinished()), default=-math.inf
        ):
            self.running = []

    def hypotheses(self) -> list[Hypothesis]:
        return [*self.finished, *self._unfinished()]

    def _unfinished(self) -> list[Hypothesis]:
        return [Hypothesis(beam.tokens, beam.log_probability, False, self.number) for beam in self.running]

    def _score(self, hypothesis: Hypothesis) -> float:
        return hypothesis.score(self.settings.length_penalty)


def _allowed(row: LogProbs, tokens: Sequence[int], ends: Ends, repeat_ngram: int) -> LogProbs:
    """The row with -inf for what is banned or would repeat; a reply may always end."""
    barred: Collection[int] = (ends.banned | repeated(tokens, repeat_ngram)) - ends.ends
    if not barred:
        return row
    row = row.copy()
    row[list(barred)] = -np.inf
    return row


def _best(values: LogProbs, count: int) -> list[tuple[int, int]]:
    """Places (row, column) of the largest finite values, largest first."""
    flat = values.ravel()
    count = min(count, flat.size)
    places = np.argpartition(-flat, count - 1)[:count]
    places = places[np.lexsort((places, -flat[places]))]
    return [divmod(int(place), values.shape[1]) for place in places if np.isfinite(flat[place])]


def _probabilities(log_probs: LogProbs) -> NDArray[np.float64]:
    """Of the values as they are, made to sum to one."""
    weights = np.exp(log_probs.astype(np.float64) - log_probs.max())
    return np.asarray(weights / weights.sum())


def _check_time(deadline: float, settings: GenerationSettings) -> None:
    if time.monotonic() >= deadline:
        raise GenerationError(
            f"the generator had no reply within {settings.max_seconds:g} s",
            fix="Allow more time (max_seconds) or fewer tokens or beams",
        )
