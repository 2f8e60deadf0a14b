"""Small fallbacks and a small guard for tests: real objects of the protocols, without weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from ranker.encoders import HashingEncoder
from ranker.engine.guard import Guard
from ranker.errors import GenerationError
from ranker.home import Home
from ranker.safety import Crisis, SafetySettings
from ranker.types import Context, Reply, Vectors

WORDS = "I hear you, tell me more."


class Talker:
    """Says the same words, and remembers what it was asked."""

    name = "talker"

    def __init__(self, words: str = WORDS) -> None:
        self.words = words
        self.asked: list[tuple[Context, tuple[str, ...]]] = []

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        self.asked.append((context, tuple(hints)))
        return Reply(self.words, "generated")

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        text = self.reply(context, hints).text
        for start in range(0, len(text), 3):
            yield text[start : start + 3]


class Sleeper(Talker):
    """Says nothing before it is woken; `started` tells how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()
        self.started = threading.Semaphore(0)

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        self.started.release()
        self.woken.wait(20)
        return super().reply(context, hints)

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        yield "Well, "
        self.started.release()
        self.woken.wait(20)
        yield "then."


class Broken(Talker):
    """Fails as an endpoint that is down does; a stream breaks after its first words."""

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        raise GenerationError("cannot reach http://secret-host:1234")

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        yield "Well, let me "
        raise GenerationError("the stream broke at http://secret-host:1234")


class Loading(Talker):
    """Has weights, which take their time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.loads = 0

    def load(self) -> None:
        self.loads += 1
        time.sleep(self.seconds)


class WordGuard(Guard):
    """Refuses replies with "damn", and takes "help me now" for an emergency."""

    def __init__(self) -> None:
        super().__init__(SafetySettings(), HashingEncoder(), Home.find())

    def crisis(self, context: Context, vector: Vectors) -> Crisis | None:
        if "help me now" not in context.last:
            return None
        return Crisis("emergency", 0.9, "Please call the emergency number.")

    def _judge(self, texts: Sequence[str], vectors: Vectors | None) -> list[bool]:
        assert vectors is None or len(vectors) == len(texts)
        return ["damn" not in text for text in texts]
