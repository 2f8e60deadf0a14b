"""What stands before every route: keys, limits, the deadline, and the numbers of each request."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Collection

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranker.server.errors import REJECTED, ApiError
from ranker.server.metrics import Metrics
from ranker.server.settings import ServerSettings

logger = logging.getLogger("ranker.server")

_LIMITED_FOLDER = "/v1/"


class Traffic:
    """The requests in this process, and whether it is about to end."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_draining = False


class KeyCheck:
    """Compares with every key in constant time. Keys are hashed first, so that lengths do not show either."""

    def __init__(self, keys: Collection[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def allows(self, headers: Headers) -> bool:
        if not self._digests:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        digest = _digest(given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", ""))
        # All of them, whichever fits: a loop that stops early tells which.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


class Gate:
    """Pure ASGI, as it is on the way of every request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServerSettings,
        keys: Collection[str],
        traffic: Traffic,
        metrics: Metrics,
        routes: Collection[str],
        open_paths: Collection[str],
    ) -> None:
        """`routes` are the paths that the numbers are told by; `open_paths` need no key."""
        self._app = app
        self._settings = settings
        self._keys = KeyCheck(keys)
        self._traffic = traffic
        self._metrics = metrics
        self._routes = frozenset(routes)
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        answer = _Answer(send, self._traffic, timed=path.startswith(_LIMITED_FOLDER))
        try:
            await self._admit(path, scope, receive, answer)
        except ApiError as error:
            if answer.status:
                raise  # too late for another answer: the connection is closed
            await error.response()(scope, receive, answer.send)
        except Exception:
            logger.exception("a request to %s failed", path)
            if answer.status:
                raise
            await ApiError.internal().response()(scope, receive, answer.send)
        finally:
            if answer.status in REJECTED:
                self._metrics.rejections.labels(REJECTED[answer.status]).inc()
            route = path if path in self._routes else "other"
            self._metrics.requests.labels(route, str(answer.status or 499)).inc()
            self._metrics.latency.labels(route).observe(time.perf_counter() - answer.start)

    async def _admit(self, path: str, scope: Scope, receive: Receive, answer: _Answer) -> None:
        headers = Headers(scope=scope)
        # Whatever is not known to be open needs a key: a new route cannot be forgotten here.
        if path not in self._open_paths and not self._keys.allows(headers):
            raise ApiError.unauthorized()
        if not path.startswith(_LIMITED_FOLDER):
            await self._app(scope, receive, answer.send)
            return
        if self._traffic.in_flight >= self._settings.max_concurrency:
            raise ApiError.overloaded()
        body = _LimitedBody(receive, headers, self._settings.max_body_bytes)
        self._traffic.in_flight += 1
        self._metrics.in_flight.set(self._traffic.in_flight)
        try:
            with anyio.move_on_after(self._settings.deadline_seconds) as deadline:
                await self._app(scope, body.receive, answer.send)
        finally:
            self._traffic.in_flight -= 1
            self._metrics.in_flight.set(self._traffic.in_flight)
        if deadline.cancelled_caught:
            raise ApiError.late(self._settings.deadline_seconds)


class _Answer:
    """Notes the status on its way out, adds the total time, and says goodbye to connections when draining."""

    def __init__(self, send: Send, traffic: Traffic, *, timed: bool) -> None:
        self.start = time.perf_counter()
        self.status = 0
        self._send = send
        self._traffic = traffic
        self._timed = timed

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            if self._timed:
                total = f"total;dur={1000 * (time.perf_counter() - self.start):.2f}"
                stages = headers.get("server-timing")
                headers["server-timing"] = f"{stages}, {total}" if stages else total
            if self._traffic.is_draining:
                headers["connection"] = "close"
        await self._send(message)


class _LimitedBody:
    """Raises ApiError (413) at the length that is announced, or as soon as more than the limit has come."""

    def __init__(self, receive: Receive, headers: Headers, limit: int) -> None:
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise ApiError.too_large(limit)
        self._receive = receive
        self._limit = limit
        self._size = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise ApiError.too_large(self._limit)
        return message


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
