"""A generator that hangs, fails or says what may not be said never keeps its caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from fallbacks import WORDS, Broken, Loading, Sleeper, Talker, WordGuard

from ranker.engine.fallback import FallbackSettings
from ranker.engine.generator import BoundedGenerator, Request, Unanswered, WordGate
from ranker.errors import MissingExtraError, NotFoundError
from ranker.types import Context, Fallback

ASKED = Request(Context.of("hello"))


def bounded(
    fallback: Fallback, seconds: float = 5.0, *, at_once: int = 1, waiting: int = 4
) -> BoundedGenerator:
    limits = FallbackSettings(max_seconds=seconds, max_concurrent=at_once, max_waiting=waiting)
    return BoundedGenerator(fallback.name, lambda: fallback, limits)


def problem_of(call: Callable[[], object]) -> str:
    with pytest.raises(Unanswered) as raised:
        call()
    return raised.value.problem


def test_a_reply_comes_whole_and_clean() -> None:
    talker = Talker("  I hear\n you. ")
    assert bounded(talker).reply(Request(Context.of("hello"), ("Hi!",))).text == "I hear you."
    assert talker.asked == [(Context.of("hello"), ("Hi!",))]


def test_nothing_is_loaded_before_the_first_request() -> None:
    loads = []

    def load() -> Fallback:
        loads.append(threading.current_thread().name)
        return Talker()

    generator = BoundedGenerator("talker", load)
    assert not generator.is_loaded
    for _ in range(3):
        generator.reply(ASKED)
    assert loads == ["ranker-generator"]


def test_the_caller_waits_no_longer_than_agreed() -> None:
    sleeper = Sleeper()
    generator = bounded(sleeper, seconds=0.2)
    began = time.monotonic()
    with pytest.raises(Unanswered, match=r"took longer than 0\.2 s"):
        generator.reply(ASKED)
    assert time.monotonic() - began < 3
    sleeper.woken.set()


def test_weights_may_take_longer_than_a_reply() -> None:
    loading = Loading(seconds=0.5)
    assert bounded(loading, seconds=0.3).reply(ASKED).text == WORDS
    assert loading.loads == 1


def test_beyond_the_line_it_is_busy() -> None:
    sleeper = Sleeper()
    generator = bounded(sleeper, at_once=2, waiting=1)
    pending = [generator.submit(ASKED) for _ in range(3)]
    assert problem_of(lambda: generator.submit(ASKED)) == "busy"
    for _ in range(2):
        assert sleeper.started.acquire(timeout=5)
    assert not sleeper.started.acquire(timeout=0.1)  # the third waits in line
    sleeper.woken.set()
    assert {generator.wait(one, 5).text for one in pending} == {WORDS}
    assert generator.reply(ASKED).text == WORDS


def test_who_gave_up_leaves_the_line() -> None:
    sleeper = Sleeper()
    generator = bounded(sleeper)
    first, second = generator.submit(ASKED), generator.submit(ASKED)
    assert sleeper.started.acquire(timeout=5)
    assert problem_of(lambda: generator.wait(second, 0.05)) == "late"
    sleeper.woken.set()
    assert generator.wait(first, 5).text == WORDS
    generator.reply(ASKED)
    assert len(sleeper.asked) == 2


def test_failures_tell_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Unanswered) as raised:
        bounded(Broken()).reply(ASKED)
    assert (raised.value.problem, str(raised.value)) == ("failed", "the generator 'talker' failed")
    assert "secret-host" in caplog.text
    assert problem_of(lambda: bounded(Talker(" ")).reply(ASKED)) == "failed"


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (NotFoundError("it is not there", fix="Run: ranker fetch generator:chat"), "missing"),
        (MissingExtraError.of("generation", "train"), "missing"),
        (OSError("a bad disk"), "failed"),
    ],
)
def test_a_load_that_fails_is_not_tried_at_once_again(error: Exception, problem: str) -> None:
    loads = []

    def load() -> Fallback:
        loads.append(1)
        raise error

    generator = BoundedGenerator("chat", load)
    assert [problem_of(lambda: generator.reply(ASKED)) for _ in range(3)] == [problem] * 3
    assert len(loads) == 1


def test_what_may_not_be_said_is_not_given() -> None:
    refused = Request(Context.of("hello"), (), WordGuard().allows)
    assert problem_of(lambda: bounded(Talker("Well, damn you.")).reply(refused)) == "unsafe"
    assert bounded(Talker()).reply(refused).text == WORDS


def test_pieces_are_whole_words_that_may_be_shown() -> None:
    pieces: list[str] = []
    guard = WordGuard()
    asked = Request(Context.of("hello"), (), guard.allows, guard.allows_part, pieces.append)
    assert bounded(Talker()).reply(asked).text == WORDS
    assert "".join(pieces) == WORDS
    assert all(piece.startswith(" ") for piece in pieces[1:])
    pieces.clear()
    assert problem_of(lambda: bounded(Talker("Well, damn you.")).reply(asked)) == "unsafe"
    assert pieces == ["Well,"]


def test_a_stream_that_nobody_reads_ends() -> None:
    sleeper = Sleeper()
    generator = bounded(sleeper)
    pieces: list[str] = []
    pending = generator.submit(Request(Context.of("hello"), emit=pieces.append))
    assert sleeper.started.acquire(timeout=5)
    pending.stop()
    sleeper.woken.set()
    assert pending.reply.exception(5) is not None
    assert pieces == ["Well,"]


def test_the_gate_by_hand() -> None:
    gate = WordGate(bool, lambda text: "bad" not in text.split())
    assert [gate.feed(piece) for piece in ("It", " is", " a b", "ad", "ger", " now")] == [
        "",
        "It",
        " is a",
        "",
        "",
        " badger",
    ]
    assert gate.finish() == " now"
    assert gate.text == "It is a badger now"
    shut = WordGate(bool, lambda text: "bad" not in text.split())
    assert [shut.feed(piece) for piece in ("A bad", " one", " here")] == ["A", "", ""]
    assert shut.is_shut
    assert shut.finish() == ""


def test_the_gate_judges_sentences_where_they_end() -> None:
    judged: list[str] = []

    def allows(text: str) -> bool:
        judged.append(text)
        return "worse" not in text

    gate = WordGate(allows, bool)
    assert [gate.feed(piece) for piece in ("Bad", " luck", "! ", "It gets", " worse", ".")] == [
        "",
        "Bad",
        " luck!",
        " It",
        " gets",
        "",
    ]
    assert gate.finish() == ""
    assert gate.is_shut
    assert judged == ["Bad luck!", "Bad luck! It gets worse."]
