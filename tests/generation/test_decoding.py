"""Decoding over hand-made probability tables: what it must choose is worked out on paper."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from ranker.errors import GenerationError
from ranker.generation.decoding import (
    Ends,
    Hypothesis,
    LogProbs,
    Step,
    deadline_of,
    diverse_beam_search,
    narrowed,
    repeated,
    sample,
)
from ranker.generation.settings import GenerationSettings

END, A, B, C, START = range(5)
NAMES = "|abc^"
ENDS = Ends(START, frozenset({END}), frozenset({START}))
NEVER = float("inf")
PLAIN = GenerationSettings(beams=2, groups=1, repeat_ngram=0, length_penalty=0.0, max_tokens=4)

Table = Callable[[tuple[int, ...]], Sequence[float]]
"""From the tokens so far to the probabilities of end, a, b and c."""


class Model:
    """Steps through a table, holding rows as a model holds its cache."""

    def __init__(self, table: Table, seconds: float = 0.0) -> None:
        self.table, self.seconds, self.calls = table, seconds, 0
        self.rows: list[tuple[int, ...]] = [()]

    def __call__(self, parents: Sequence[int], tokens: Sequence[int]) -> LogProbs:
        time.sleep(self.seconds)
        self.calls += 1
        self.rows = [(*self.rows[parent], token) for parent, token in zip(parents, tokens, strict=True)]
        return np.stack([log([*self.table(row[1:]), 0.0]) for row in self.rows])


def log(probabilities: Sequence[float]) -> LogProbs:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


def by_last(rules: Mapping[str, Sequence[float]]) -> Table:
    """Probabilities that depend on the last token only; "^" is the start."""
    return lambda tokens: rules[NAMES[tokens[-1]] if tokens else "^"]


def texts(found: Sequence[Hypothesis]) -> list[str]:
    return ["".join(NAMES[token] for token in one.tokens) + "|" * one.finished for one in found]


# The greedy way begins with a (0.5) and ends at 0.5 * 0.4 * 1; through b: 0.4 * 0.9 * 1 is better.
GARDEN = by_last(
    {"^": (0, 0.5, 0.4, 0.1), "a": (0, 0.3, 0.3, 0.4), "b": (0, 0.05, 0.05, 0.9), "c": (1, 0, 0, 0)}
)


def test_beams_find_what_greed_misses() -> None:
    greedy = diverse_beam_search(Model(GARDEN), ENDS, replace(PLAIN, beams=1), NEVER)
    assert texts(greedy) == ["ac|"]
    assert greedy[0].log_probability == pytest.approx(math.log(0.5 * 0.4))
    found = diverse_beam_search(Model(GARDEN), ENDS, PLAIN, NEVER)
    assert texts(found) == ["bc|", "ac|"]
    assert [math.exp(one.log_probability) for one in found] == pytest.approx([0.36, 0.2])


# By hand, two groups of one beam: the first takes a (0.5). Unpenalised, the second does as well.
# A penalty of 0.3 turns a's log 0.5 = -0.69 into -0.99, below b's log 0.4 = -0.92: the second takes b.
# At the second step both would choose c (0.4 and 0.9): c's log 0.9 = -0.11 becomes -0.41 for the second,
# still far above log 0.05. Both end at the third. A penalty of 20 bars c as well; of a and b, alike, it takes
# a. At the third step the first group ends, which bars nothing, so that the second now takes c (0.4).
@pytest.mark.parametrize(
    ("penalty", "expected"),
    [(0.0, ["ac|", "ac|"]), (0.2, ["ac|", "ac|"]), (0.3, ["bc|", "ac|"]), (20.0, ["ac|", "bac|"])],
)
def test_groups_differ_by_the_penalty(penalty: float, expected: list[str]) -> None:
    settings = replace(PLAIN, groups=2, diversity_penalty=penalty)
    assert texts(diverse_beam_search(Model(GARDEN), ENDS, settings, NEVER)) == expected


def test_the_penalty_steers_but_does_not_count() -> None:
    settings = replace(PLAIN, groups=2, diversity_penalty=0.3)
    best, second = diverse_beam_search(Model(GARDEN), ENDS, settings, NEVER)
    assert (best.group, second.group) == (1, 0)
    assert math.exp(best.log_probability) == pytest.approx(0.36)


def test_earlier_groups_count_once_for_each_beam() -> None:
    """With groups of two: the first takes a and b, so that the second finds both penalised alike and takes
    c (0.1) only where the penalty exceeds log(0.4 / 0.1) = 1.39."""
    for penalty, firsts in ((1.3, "ab"), (1.5, "ac")):
        settings = replace(PLAIN, beams=4, groups=2, diversity_penalty=penalty, max_tokens=1)
        found = diverse_beam_search(Model(GARDEN), ENDS, settings, NEVER)
        second = sorted(NAMES[one.tokens[0]] for one in found if one.group == 1)
        assert "".join(second) == firsts


def test_length_normalisation() -> None:
    """ "a|" has 0.4, in two tokens; "bcc|" has 0.6 * 0.8 * 0.9 * 0.9 = 0.389 in four."""

    def table(tokens: tuple[int, ...]) -> Sequence[float]:
        return {
            (): (0, 0.4, 0.6, 0),
            (A,): (1, 0, 0, 0),
            (B,): (0.2, 0, 0, 0.8),
            (B, C): (0.1, 0, 0, 0.9),
            (B, C, C): (0.9, 0.1, 0, 0),
        }.get(tokens, (1, 0, 0, 0))

    short = diverse_beam_search(Model(table), ENDS, PLAIN, NEVER)[0]
    long = diverse_beam_search(Model(table), ENDS, replace(PLAIN, length_penalty=1.0), NEVER)[0]
    assert texts([short, long]) == ["a|", "bcc|"]
    assert long.score(1.0) == pytest.approx(math.log(0.6 * 0.8 * 0.9 * 0.9) / 4)
    assert long.score(0.0) == long.log_probability


def random_table(seed: int, *, ends: bool = True) -> Table:
    def table(tokens: tuple[int, ...]) -> Sequence[float]:
        made = np.random.default_rng([seed, *tokens]).dirichlet(np.ones(4))
        return list(made) if ends else [0.0, *(made[1:] / made[1:].sum())]

    return table


def every_reply(table: Table, longest: int) -> list[tuple[float, tuple[int, ...]]]:
    """All finished replies of fewer than `longest` tokens with their log probability, by brute force."""
    found = []
    for length in range(longest):
        for tokens in itertools.product((A, B, C), repeat=length):
            total = sum(math.log(table(tokens[:i])[token]) for i, token in enumerate(tokens))
            found.append((total + math.log(table(tokens)[END]), tokens))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_wide_beams_are_an_exhaustive_search(seed: int, penalty: float) -> None:
    table = random_table(seed)
    settings = replace(PLAIN, beams=200, length_penalty=penalty, max_tokens=4)
    found = [one for one in diverse_beam_search(Model(table), ENDS, settings, NEVER) if one.finished]
    expected = sorted(
        every_reply(table, 4), key=lambda one: one[0] / (len(one[1]) + 1) ** penalty, reverse=True
    )
    assert len(found) == len(expected) == 1 + 3 + 9 + 27
    assert [one.tokens for one in found] == [tokens for _, tokens in expected]
    assert [one.log_probability for one in found] == pytest.approx([total for total, _ in expected], abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_one_group_is_the_textbook_beam(seed: int) -> None:
    """On a table without an end, the beams after n steps are those of the plain recurrence."""
    table = random_table(seed, ends=False)
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(5):
        grown = [
            (total + math.log(table(tokens)[token]), (*tokens, token))
            for total, tokens in beams
            for token in (A, B, C)
        ]
        beams = sorted(grown, reverse=True)[:3]
    settings = replace(PLAIN, beams=3, max_tokens=5)
    found = diverse_beam_search(Model(table), ENDS, settings, NEVER)
    assert [one.tokens for one in found] == [tokens for _, tokens in beams]
    assert not any(one.finished for one in found)


def test_repeated() -> None:
    assert repeated([A, B, C, A, B], 3) == {C}
    assert repeated([A, B, A, C, A], 2) == {B, C}
    assert repeated([A, B], 1) == {A, B}
    assert repeated([A, B, A, B], 0) == set()
    assert repeated([A, A], 3) == set()
    assert repeated([A, A, A], 3) == {A}
    assert repeated([], 1) == set()


LOOP = by_last(
    {
        "^": (0, 0.9, 0.1, 0),
        "a": (0.05, 0, 0.9, 0.05),
        "b": (0.05, 0.9, 0, 0.05),
        "c": (0.9, 0.05, 0.05, 0),
    }
)


def test_no_run_of_tokens_twice() -> None:
    free = replace(PLAIN, beams=1, max_tokens=8)
    assert texts(diverse_beam_search(Model(LOOP), ENDS, free, NEVER)) == ["abababab"]
    # After "aba" a second "ab" is barred: c and the end are left, alike; the end comes first.
    (found,) = diverse_beam_search(Model(LOOP), ENDS, replace(free, repeat_ngram=2), NEVER)
    assert texts([found]) == ["aba|"]
    # With one token never twice, the way ends after "abc" at the latest: an end is always allowed.
    drawn = list(sample(Model(LOOP), ENDS, replace(free, repeat_ngram=1, top_k=0, top_p=1.0), NEVER))
    assert len(set(drawn)) == len(drawn)


def test_banned_tokens_never_appear() -> None:
    ends = Ends(START, frozenset({END}), frozenset({START, A}))
    found = diverse_beam_search(Model(GARDEN), ends, PLAIN, NEVER)
    assert not any(A in one.tokens for one in found)


def test_several_ends() -> None:
    ends = Ends(START, frozenset({END, C}), frozenset({START}))
    found = diverse_beam_search(Model(GARDEN), ends, PLAIN, NEVER)
    assert texts(found) == ["b|", "a|"]


def test_narrowed() -> None:
    row = log([0.4, 0.1, 0.3, 0.2])
    assert np.isfinite(narrowed(row, top_k=2)).tolist() == [True, False, True, False]
    assert np.isfinite(narrowed(row, top_p=0.69)).tolist() == [True, False, True, False]
    assert np.isfinite(narrowed(row, top_p=0.71)).tolist() == [True, False, True, True]
    # Of the best two, 0.4 / 0.7 = 57 % is the first one's.
    assert np.isfinite(narrowed(row, top_k=2, top_p=0.5)).tolist() == [True, False, False, False]
    assert narrowed(row, top_k=2)[2] == row[2]
    assert np.isfinite(narrowed(row, top_p=1e-9)).sum() == 1
    assert np.isfinite(narrowed(row)).all()
    assert np.isfinite(narrowed(log([0.25] * 4), top_k=2)).tolist() == [True, True, False, False]


def first_tokens(settings: GenerationSettings, count: int = 400) -> list[float]:
    """Shares of end, a, b, c among the first tokens that are drawn."""
    table = by_last({"^": (0, 0.6, 0.3, 0.1)})
    drawn = [next(sample(Model(table), ENDS, replace(settings, seed=seed), NEVER)) for seed in range(count)]
    return [drawn.count(token) / count for token in range(4)]


def test_sampling_follows_the_probabilities() -> None:
    free = replace(PLAIN, top_k=0, top_p=1.0, temperature=1.0)
    assert first_tokens(free) == pytest.approx([0, 0.6, 0.3, 0.1], abs=0.07)
    # At temperature 0.5 probabilities are squared: 0.36, 0.09, 0.01 of 0.46.
    assert first_tokens(replace(free, temperature=0.5)) == pytest.approx([0, 0.783, 0.196, 0.022], abs=0.06)
    assert first_tokens(replace(free, top_k=2)) == pytest.approx([0, 0.667, 0.333, 0], abs=0.07)
    assert first_tokens(replace(free, top_k=1), 20) == [0, 1, 0, 0]


def test_sampling_is_seeded_and_limited() -> None:
    settings = replace(PLAIN, max_tokens=6, temperature=1.0, top_k=0, top_p=1.0)
    table = random_table(3, ends=False)
    one, again, other = (
        list(sample(Model(table), ENDS, replace(settings, seed=seed), NEVER)) for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other
    assert len(one) == 6
    ending = by_last({"^": (0, 1, 0, 0), "a": (1, 0, 0, 0)})
    assert list(sample(Model(ending), ENDS, settings, NEVER)) == [A]


def test_sampling_streams() -> None:
    model = Model(random_table(3, ends=False))
    stream = sample(model, ENDS, PLAIN, NEVER)
    assert model.calls == 0
    next(stream)
    assert model.calls == 1


@pytest.mark.parametrize("decode", [diverse_beam_search, lambda *given: list(sample(*given))])
def test_the_deadline_holds(decode: Callable[[Step, Ends, GenerationSettings, float], object]) -> None:
    settings = GenerationSettings(max_seconds=0.1, max_tokens=1000, repeat_ngram=0)
    model = Model(random_table(1, ends=False), seconds=0.01)
    before = time.monotonic()
    with pytest.raises(GenerationError, match=r"no reply within 0\.1 s"):
        decode(model, ENDS, settings, deadline_of(settings))
    assert time.monotonic() - before < 1
    assert 2 <= model.calls < 12


def test_what_is_finished_at_the_deadline_is_kept() -> None:
    def table(tokens: tuple[int, ...]) -> Sequence[float]:
        return (1, 0, 0, 0) if tokens[:1] == (A,) else (0, 0.5, 0.5, 0)

    settings = replace(PLAIN, max_tokens=1000, max_seconds=0.1)
    found = diverse_beam_search(Model(table, 0.01), ENDS, settings, deadline_of(settings))
    assert texts(found)[0] == "a|"


def test_no_beam_left_is_no_reply() -> None:
    nothing = by_last({"^": (0, 0, 0, 0)})
    assert diverse_beam_search(Model(nothing), ENDS, PLAIN, NEVER) == []
    assert list(sample(Model(nothing), ENDS, PLAIN, NEVER)) == []
