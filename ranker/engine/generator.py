"""A generator within bounds: loaded when first needed, run in its own threads, waited for only so long.

Whatever the generator does (hang, fail, write what may not be said), its caller gets a reply or an
`Unanswered` that says what happened. A thread cannot be ended from outside, so one that hangs keeps its
place: others then hear that the generator is busy, and retrieval goes on undisturbed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ranker.config import settings
from ranker.engine.fallback import FallbackSettings
from ranker.errors import GenerationError, MissingExtraError, NotFoundError
from ranker.home import Home
from ranker.types import Context, Fallback, Reply, clean_text

if TYPE_CHECKING:
    from ranker.generation import GenerationSettings

logger = logging.getLogger("ranker.engine")

Problem = Literal["missing", "failed", "late", "busy", "unsafe"]
_LOAD_SECONDS = 120.0
"""Reading weights may take longer than a reply, once."""
_RETRY_SECONDS = 30.0
"""After a load that failed, for how long it is not tried again."""
_LOOK_SECONDS = 0.05
_SENTENCE_ENDS = (".", "!", "?", "…")


class Unanswered(GenerationError):
    """There is no generated reply. The message names no file, since callers far away may read it."""

    def __init__(self, problem: Problem, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Request:
    """What a generator is asked for. `allows` says whether a text may be shown, `allows_part` whether the
    beginning of one may.

    `emit` gets the reply in pieces of whole words (see WordGate), in the generator's thread; without it the
    reply comes whole.
    """

    context: Context
    hints: Sequence[str] = ()
    allows: Callable[[str], bool] = bool
    allows_part: Callable[[str], bool] = bool
    emit: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A request in work or in line."""

    request: Request
    reply: Future[Reply] = field(default_factory=Future)
    """The reply, or Unanswered."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Nobody waits any more: leave the line, or end at the next piece."""
        self.stopped.set()
        self.reply.cancel()


class BoundedGenerator:
    """Safe to share between threads."""

    def __init__(
        self,
        name: str,
        load: Callable[[], Fallback],
        limits: FallbackSettings | None = None,
        *,
        source: str = "",
    ) -> None:
        """`name` is shown in notes; `load` is called at the first request, in a thread. `source` is the
        name or folder that it is loaded from, where that is another."""
        self.name = name
        self.source = source or name
        self._load = load
        self._limits = limits or FallbackSettings()
        self._line: deque[Pending] = deque()
        self._working = 0
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._loaded: Fallback | None = None
        self._failure: Unanswered | None = None
        self._failed_at = 0.0

    @property
    def max_seconds(self) -> float:
        return self._limits.max_seconds

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def reply(self, request: Request) -> Reply:
        """The reply, within `max_seconds` once the weights are loaded. Raises Unanswered."""
        pending = self.submit(request)
        self.wait_for_weights(pending)
        return self.wait(pending, self.max_seconds)

    def wait(self, pending: Pending, seconds: float) -> Reply:
        """Raises Unanswered, also where it takes longer; the request is then given up."""
        try:
            return pending.reply.result(seconds)
        except (FutureTimeout, CancelledError):
            pending.stop()
            raise self.late(seconds) from None

    def late(self, seconds: float) -> Unanswered:
        """What to say of a request that was given up after so long."""
        if not self.is_loaded:
            return Unanswered("late", f"the generator {self.name!r} is still being loaded")
        logger.warning("the generator %r took longer than %g s", self.name, seconds)
        return Unanswered("late", f"the generator {self.name!r} took longer than {seconds:g} s")

    def submit(self, request: Request) -> Pending:
        """Take a request into the line, without waiting. Raises Unanswered where the line is full, or the
        generator could not be loaded a moment ago."""
        if self._failure is not None and time.monotonic() < self._failed_at + _RETRY_SECONDS:
            raise self._failure
        pending = Pending(request)
        with self._lock:
            if self._working < self._limits.max_concurrent:
                self._working += 1
            elif len(self._line) < self._limits.max_waiting:
                self._line.append(pending)
                return pending
            else:
                raise Unanswered("busy", f"the generator {self.name!r} is busy")
        # A daemon: a generator that hangs must not keep the program from ending.
        threading.Thread(target=self._work, args=(pending,), name="ranker-generator", daemon=True).start()
        return pending

    def wait_for_weights(self, pending: Pending) -> None:
        """Until they are loaded, or the request has its answer without."""
        end = time.monotonic() + _LOAD_SECONDS
        while not self.is_loaded and not pending.reply.done() and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)

    def _work(self, pending: Pending) -> None:
        """In a thread: this request, then those in line."""
        while True:
            if pending.reply.set_running_or_notify_cancel():
                try:
                    pending.reply.set_result(self._answer(pending))
                except Unanswered as problem:
                    pending.reply.set_exception(problem)
                except Exception as error:  # whatever it raises, the caller gets the retrieved reply
                    pending.reply.set_exception(self._problem(error))
            with self._lock:
                if not self._line:
                    self._working -= 1
                    return
                pending = self._line.popleft()

    def _answer(self, pending: Pending) -> Reply:
        fallback, request = self._fallback(), pending.request
        if request.emit is None:
            reply = fallback.reply(request.context, request.hints)
            reply = replace(reply, text=clean_text(reply.text))
            if not reply.text:
                raise Unanswered("failed", f"the generator {self.name!r} had nothing to say")
            if not request.allows(reply.text):
                raise self._unsafe()
            return reply
        gate = WordGate(request.allows, request.allows_part)
        for piece in fallback.stream(request.context, request.hints):
            if pending.stopped.is_set():
                raise Unanswered("late", "the reply was given up")
            self._release(gate.feed(piece), gate, request.emit)
        self._release(gate.finish(), gate, request.emit)
        if not gate.text.strip():
            raise Unanswered("failed", f"the generator {self.name!r} had nothing to say")
        return Reply(clean_text(gate.text), "generated")

    def _release(self, ready: str, gate: WordGate, emit: Callable[[str], None]) -> None:
        if gate.is_shut:
            raise self._unsafe()
        if ready:
            emit(ready)

    def _fallback(self) -> Fallback:
        with self._loading:
            if self._loaded is None:
                try:
                    made = self._load()
                    read_weights = getattr(made, "load", None)  # of generators that run here
                    if callable(read_weights):
                        read_weights()
                except Exception as error:
                    self._failure, self._failed_at = self._problem(error), time.monotonic()
                    raise self._failure from error
                self._loaded, self._failure = made, None
            return self._loaded

    def _problem(self, error: Exception) -> Unanswered:
        """The full story goes to the log only."""
        if isinstance(error, NotFoundError | MissingExtraError):
            logger.info("the generator %r is missing: %s", self.name, error)
            return Unanswered("missing", f"the generator {self.name!r} is not installed", fix=error.fix)
        logger.warning("the generator %r failed: %s", self.name, error or type(error).__name__)
        return Unanswered("failed", f"the generator {self.name!r} failed")

    def _unsafe(self) -> Unanswered:
        return Unanswered("unsafe", f"what the generator {self.name!r} wrote may not be said")


class WordGate:
    """Lets a text through in whole words, each only if all so far may be shown; shuts for good otherwise.

    `allows` judges whole sentences, at the end of each; `allows_part` judges at every word, since the
    beginning of a sentence says too little for more. What was let through cannot be taken back.
    """

    def __init__(self, allows: Callable[[str], bool], allows_part: Callable[[str], bool]) -> None:
        self._allows = allows
        self._allows_part = allows_part
        self._given = 0
        self.text = ""
        self.is_shut = False

    def feed(self, piece: str) -> str:
        """What may be shown now: up to the last space, since a word may still grow."""
        self.text += piece
        end = max(self.text.rfind(" "), self.text.rfind("\n"))
        return self._upto(end, is_whole=self.text[:end].endswith(_SENTENCE_ENDS))

    def finish(self) -> str:
        """The rest."""
        return self._upto(len(self.text), is_whole=True)

    def _upto(self, end: int, *, is_whole: bool) -> str:
        if self.is_shut or end <= self._given:
            return ""
        part = self.text[:end]
        if not self._allows_part(part) or (is_whole and not self._allows(part)):
            self.is_shut = True
            return ""
        ready, self._given = self.text[self._given : end], end
        return ready if part.strip() else ""


def bounded(
    generator: str | Path | Fallback,
    home: Home,
    limits: FallbackSettings | None = None,
    generation: GenerationSettings | None = None,
) -> BoundedGenerator:
    """A generator by name or folder, or one of the caller's own, within the limits of [fallback].

    `generation` is how it writes; without it, as the table [generation] of the home's file says.
    """
    limits = limits or FallbackSettings()

    def load() -> Fallback:
        if not isinstance(generator, str | Path):
            return generator
        from ranker.generation import GenerationSettings, load_generator

        how = generation or settings(GenerationSettings, "generation", file=home.config_file)
        # Ours is the longer breath: a reply that is cut short in time is still a reply.
        own = min(how.max_seconds, 0.9 * limits.max_seconds)
        return load_generator(generator, home, replace(how, max_seconds=own))

    if isinstance(generator, str | Path):
        return BoundedGenerator(Path(generator).name, load, limits, source=str(generator))
    return BoundedGenerator(generator.name, load, limits)
