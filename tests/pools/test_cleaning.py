"""What cleaning keeps, what it drops, and why."""

from __future__ import annotations

import time

import pytest

from ranker.errors import ConfigError
from ranker.pools import CleaningSettings, clean
from ranker.types import Candidate, Label


def cleaned(*texts: str, settings: CleaningSettings | None = None) -> tuple[list[str], dict[str, int]]:
    kept, report = clean(
        (Candidate(str(number), text, "pool") for number, text in enumerate(texts)),
        settings or CleaningSettings(),
    )
    assert report.seen == len(texts) == report.kept + sum(report.dropped.values())
    return [candidate.text for candidate in kept], dict(report.dropped)


def test_text_is_normalised_and_the_rest_of_a_candidate_kept() -> None:
    given = Candidate("id", " cafe\u0301\t is\x00 open ", "pool", (Label("topic", "food"),))
    (kept,), _ = clean([given], CleaningSettings())
    assert kept == Candidate("id", "caf\u00e9 is open", "pool", (Label("topic", "food"),))


def test_the_first_of_duplicates_stays_and_the_order_is_kept() -> None:
    texts, dropped = cleaned("Really?", "No way!", "Really?", "really", "REALLY ?!", "no  way", "Hm, no")
    assert texts == ["Really?", "No way!", "Hm, no"]
    assert dropped == {"exact duplicates": 1, "near duplicates": 3}


def test_near_duplicates_may_stay() -> None:
    texts, dropped = cleaned("Yes", "Yes", "yes!", settings=CleaningSettings(near_duplicates=False))
    assert texts == ["Yes", "yes!"]
    assert dropped == {"exact duplicates": 1}


def test_other_scripts_are_words_and_their_marks_tell_them_apart() -> None:
    texts, dropped = cleaned("你好吗", "你好吗？", "की", "का")
    assert texts == ["你好吗", "की", "का"]
    assert dropped == {"near duplicates": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("😀😀", "without words"),
        ("?!...", "without words"),
        ("https://example.org/a?b=c", "without words"),
        ("www.example.org", "without words"),
        ("[this](http://example.org)", "without words"),
        ("[deleted]", "without words"),
        ("<br/> &nbsp;", "without words"),
        ("x", "too short"),
        ("a" * 100_000, "too long"),
        ("word " * 101, "too long"),
        ("this is bullshit", "profane"),
    ],
)
def test_what_is_dropped(text: str, reason: str) -> None:
    assert cleaned(text) == ([], {reason: 1})


@pytest.mark.parametrize(
    "text",
    [
        "See https://example.org for more",
        "No 😀",
        "I <3 you",
        "AT&T called [again]",
        "\ud800 broken but there",
        "word " * 99 + "word",
    ],
)
def test_what_is_kept(text: str) -> None:
    assert len(cleaned(text)[0]) == 1


def test_length_limits_are_inclusive() -> None:
    settings = CleaningSettings(min_chars=4, max_chars=9, min_words=2, max_words=3)
    texts, dropped = cleaned("a b", "a bc", "abcd", "ab cd efg", "a b c d", "ab cd efgh", settings=settings)
    assert texts == ["a bc", "ab cd efg"]
    assert dropped == {"too short": 2, "too long": 2}


def test_profane_texts_may_be_kept_and_are_counted() -> None:
    kept, report = clean([Candidate("1", "Holy shit!", "p")], CleaningSettings(profane="keep"))
    assert len(kept) == 1
    assert report.profane == 1
    assert report.summary() == "kept 1 of 1; 1 of them profane"


def test_settings_out_of_range() -> None:
    with pytest.raises(ConfigError):
        CleaningSettings(min_chars=10, max_chars=5)


def test_many_candidates_take_seconds() -> None:
    texts = (f"This is reply number {number}, and it is fine." for number in range(20_000))
    start = time.perf_counter()
    kept, _ = clean((Candidate("", text, "p") for text in texts), CleaningSettings())
    assert len(kept) == 20_000
    assert time.perf_counter() - start < 10  # 0.2 s on an idle machine; quadratic work would take minutes
