"""Answers by asking an endpoint: what to send, how often to try, and within which time."""

from __future__ import annotations

import json
import os
import random
import re
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from ranker.errors import GenerationError
from ranker.generation.openai.answers import quoted_error, read_answer
from ranker.generation.openai.budget import Budget
from ranker.generation.openai.exchange import Exchange
from ranker.generation.openai.failure import EndpointFailure
from ranker.generation.openai.settings import TABLE, EndpointSettings
from ranker.generation.openai.utterance import Utterance
from ranker.generation.settings import GenerationSettings
from ranker.types import Context, Reply, clean_text

NAME = "openai"
PERSONA = "You are a warm and attentive friend who listens."
_RULES = (
    "Reply to the last message in one or two short sentences, as people do in a chat. "
    "Write nothing but the reply: no name in front, no quotes around it, no list."
)
_EXAMPLES = "People replied to similar messages with the lines below. Take their tone, not their facts."
_TRY_LATER = (429, 500, 502, 503, 504)
_CHARACTERS_PER_TOKEN = 8
"""More than any language's average: a longer reply is that of an endpoint which pays no heed to its limit."""
_MAX_HINT_CHARACTERS = 300
_ERROR_BYTES, _ERROR_SECONDS = 1 << 14, 1.0
_KEY = re.compile(r"[!-~]+")


class OpenAIFallback:
    """A `Fallback` that asks an OpenAI-compatible endpoint. Threads may share it, and its budget with it.

    Of GenerationSettings it uses max_seconds (over all attempts), max_tokens, temperature and persona.
    Every failure is a GenerationError that names the host and the reason, within max_seconds; where a stream
    breaks off in the middle, that too is an error, and what came of it is no reply: a torso may say the
    opposite of the whole.
    """

    def __init__(self, endpoint: EndpointSettings, settings: GenerationSettings | None = None) -> None:
        self._endpoint = endpoint
        self._settings = settings or GenerationSettings()
        self._budget = Budget(endpoint.requests_per_minute)
        self._tls = ssl.create_default_context() if endpoint.is_encrypted else None

    @property
    def name(self) -> str:
        return NAME

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        """Raises GenerationError."""
        run = self._run(context, hints, is_stream=False)
        text = "".join(run.pieces())
        is_cut = run.finish_reason == "length"
        return Reply(
            text,
            "generated",
            note=f"cut off at {self._settings.max_tokens} tokens" if is_cut else "",
            details={
                "endpoint": self._endpoint.address,
                "model": self._endpoint.model,
                "finish_reason": run.finish_reason,
                "attempts": str(run.attempts),
            },
        )

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        """Whole words as they come. The time runs from the first one asked for. Raises GenerationError, also
        after some pieces: they must then be dropped."""
        return self._run(context, hints, is_stream=True).pieces()

    def _run(self, context: Context, hints: Sequence[str], *, is_stream: bool) -> _Run:
        endpoint, settings = self._endpoint, self._settings
        shown = [clean_text(hint)[:_MAX_HINT_CHARACTERS] for hint in hints[: endpoint.examples]]
        body = {
            "model": endpoint.model,
            "messages": messages(
                context,
                persona=settings.persona or PERSONA,
                examples=[hint for hint in shown if hint],
                max_characters=endpoint.max_context_characters,
            ),
            endpoint.token_limit_field: settings.max_tokens,
            "temperature": settings.temperature,
            "stream": is_stream,
        }
        return _Run(endpoint, settings, self._budget, self._tls, json.dumps(body).encode("ascii"))


def messages(
    context: Context, *, persona: str, examples: Sequence[str] = (), max_characters: int
) -> list[dict[str, str]]:
    """The instructions, then the newest turns that fit: the last is the user's, before it they alternate."""
    parts = [f"{persona} {_RULES}"]
    if examples:
        parts.append("\n".join([_EXAMPLES, *(f"- {example}" for example in examples)]))
    turns: list[dict[str, str]] = []
    left = max_characters
    for age, turn in enumerate(reversed(context.turns)):
        if len(turn) > left and age:
            if turns[-1]["role"] == "assistant":
                turns.pop()  # what is cut should not begin with an answer: some chat templates refuse that
            break
        turns.append({"role": "assistant" if age % 2 else "user", "content": turn[-left:]})
        left -= len(turn)
    return [{"role": "system", "content": "\n\n".join(parts)}, *reversed(turns)]


class _Run:
    """The attempts at one reply."""

    def __init__(
        self,
        endpoint: EndpointSettings,
        settings: GenerationSettings,
        budget: Budget,
        tls: ssl.SSLContext | None,
        body: bytes,
    ) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._budget = budget
        self._tls = tls
        self._body = body
        self._end = 0.0
        self.attempts = 0
        self.finish_reason = ""

    def pieces(self) -> Iterator[str]:
        """The utterance, piece by piece. Another attempt is made only while nothing was given out."""
        self._end = time.monotonic() + self._settings.max_seconds
        key = self._key()
        if seconds := self._budget.take():
            limit = self._endpoint.requests_per_minute
            raise self._error(
                f"was not asked: the budget of {limit} requests a minute is used up",
                fix=f"Try again in {seconds:.0f} s, or raise requests_per_minute in [{TABLE}]",
            )
        while True:
            self.attempts += 1
            has_begun = False
            try:
                for piece in self._attempt(key):
                    has_begun = True
                    yield piece
                return
            except EndpointFailure as failure:
                wait = self._wait_after(failure)
                if has_begun or not self._may_retry(failure, wait):
                    raise self._error(failure.reason, fix=failure.fix) from failure.__cause__
            time.sleep(wait)

    def _attempt(self, key: str) -> Iterator[str]:
        """Raises EndpointFailure."""
        headers = {
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "Content-Type": "application/json",
            "User-Agent": "response-ranker",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.finish_reason = ""
        until = min(self._end, time.monotonic() + self._endpoint.timeout_seconds)
        made = Utterance(self._settings.max_tokens * _CHARACTERS_PER_TOKEN)
        with Exchange(self._endpoint, headers, self._body, until=until, tls=self._tls) as exchange:
            if exchange.status != HTTPStatus.OK:
                raise self._refused(exchange, key)
            for received in read_answer(exchange.chunks(), exchange.header("Content-Type")):
                self.finish_reason = received.finish_reason or self.finish_reason
                if words := made.add(received.text):
                    exchange.until = self._end
                    yield words
                if made.is_full:
                    break
        is_cut = made.is_full or self.finish_reason == "length"
        if is_cut:
            self.finish_reason = "length"
        if rest := made.end(is_cut=is_cut):
            yield rest
        if not made.text:
            raise EndpointFailure("answers without any text")

    def _refused(self, exchange: Exchange, key: str) -> EndpointFailure:
        """What an answer with another status than 200 means."""
        status = exchange.status
        reason, fix = f"answers {status} {_phrase(status)}".strip(), ""
        if status in (401, 403):
            variable = self._endpoint.key_variable
            fix = f"Check the key in ${variable}" if variable else f"Name the key: key_variable in [{TABLE}]"
            return EndpointFailure(reason, fix=fix)  # not quoted, as it likes to show the key
        if status // 100 == 3:
            return EndpointFailure(f"{reason}: redirects are not followed", fix="Set base_url to where it is")
        if status == 404:
            fix = "Check model, and base_url: it ends where /chat/completions would follow, often with /v1"
        exchange.until = min(exchange.until, time.monotonic() + _ERROR_SECONDS)
        body = bytearray()
        with suppress(EndpointFailure):
            for chunk in exchange.chunks(_ERROR_BYTES):
                body += chunk
        if said := quoted_error(bytes(body), key):
            reason = f"{reason} ({said.rstrip('.')})"
        return EndpointFailure(
            reason,
            may_pass=status in _TRY_LATER,
            retry_after=_retry_after(exchange.header("Retry-After")),
            fix=fix,
        )

    def _wait_after(self, failure: EndpointFailure) -> float:
        """Seconds before the next attempt: doubling, and random so that callers do not return at once."""
        backoff = self._endpoint.backoff_seconds * 2.0 ** (self.attempts - 1)
        return max(backoff * random.uniform(0.5, 1.0), failure.retry_after or 0.0)

    def _may_retry(self, failure: EndpointFailure, wait: float) -> bool:
        """Whether there is reason, time and budget for another attempt. Takes it from the budget."""
        return (
            failure.may_pass
            and self.attempts <= self._endpoint.retries
            and time.monotonic() + wait < self._end
            and self._budget.take() == 0.0
        )

    def _key(self) -> str:
        """From the environment, each time, so that no object holds it; empty where none is to be sent."""
        variable = self._endpoint.key_variable
        if not variable:
            return ""
        key = os.environ.get(variable, "").strip()
        if not key:
            raise self._error(f"was not asked: its key is missing, ${variable} is not set")
        if not _KEY.fullmatch(key):
            # http.client would refuse it with a message that shows it.
            raise self._error(f"was not asked: the key in ${variable} has characters that no key has")
        return key

    def _error(self, reason: str, *, fix: str = "") -> GenerationError:
        tries = f", tried {self.attempts} times" if self.attempts > 1 else ""
        return GenerationError(f"the endpoint at {self._endpoint.address} {reason}{tries}", fix=fix)


def _phrase(status: int) -> str:
    """In the standard's words, not the server's."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _retry_after(value: str) -> float | None:
    """Seconds, from a number or a date; None where it is neither."""
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp() - time.time())
