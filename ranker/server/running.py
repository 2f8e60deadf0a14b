"""Running the app under uvicorn: one process, or several that share the port."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import logging.config
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

import uvicorn

from ranker.bundle import Bundle
from ranker.engine import DEFAULT_INDEX, index_folder
from ranker.errors import ConfigError
from ranker.home import Home
from ranker.server.app import create_app
from ranker.server.metrics import SHARED_FOLDER
from ranker.server.settings import ServerSettings

logger = logging.getLogger("ranker.server")

_BACKLOG = 2048
_LOOK_SECONDS = 0.5
_FIRST_REQUEST_SECONDS = 1.0
"""How long a connection that has just come may take to send its request, before it is cut off at the end."""
_WAIT_SECONDS = 0.001
_LONGEST_WAIT = 3
"""A connection waits for a worker so many times _WAIT_SECONDS at most: short beside the time of a request."""
_MIN_LIFE_SECONDS = 30.0
"""A worker that ends sooner would most likely do so again."""
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "uvicorn.access": {"level": "INFO"},
        "ranker.server": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}


def run_server(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl+C. Raises NotFoundError for an unknown index, IntegrityError for a damaged
    one, and ConfigError for keys that cannot be read, a port that is taken, and workers that end at once."""
    home = Home.find(settings.home)
    for name in settings.indexes or (DEFAULT_INDEX,):
        Bundle.open(index_folder(name, home))
    has_keys = bool(settings.keys())
    logging.config.dictConfig(_LOGGING)
    with _listening(settings) as port:
        host, number = port.getsockname()[:2]
        logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, number)
        if settings.is_exposed and not has_keys:
            logger.warning(
                "anybody who reaches %s may call this server: set RANKER_SERVER_API_KEYS or api_keys_file",
                settings.host,
            )
        if settings.workers == 1:
            _serve(settings, port)
        else:
            with tempfile.TemporaryDirectory(prefix="ranker-metrics-") as folder:
                os.environ.setdefault(SHARED_FOLDER, folder)
                _Workers(settings, port).run()


class _Server(uvicorn.Server):
    """Loses no connection when it stops: closing a port resets those that the kernel has already accepted, so
    they are taken over first."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        late: list[socket.socket] = []
        for port in sockets or ():
            port.setblocking(False)
            try:
                while True:
                    late.append(port.accept()[0])
            except OSError:  # none is left, or another process took it
                pass
        for server in self.servers:
            server.close()
        for port in sockets or ():
            port.close()
        loop = asyncio.get_running_loop()
        for connection in late:
            connection.setblocking(False)
            await loop.connect_accepted_socket(self._protocol, connection)
        end = loop.time() + _FIRST_REQUEST_SECONDS
        while loop.time() < end and any(
            getattr(connection, "cycle", None) is None for connection in self.server_state.connections
        ):
            await asyncio.sleep(0.02)
        await super().shutdown()

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


class _SharingServer(_Server):
    """One of several on a port. Left alone, the first that wakes up takes all connections that wait, and
    keeps them while the others idle: so each takes one at a time, and later the more of them it has."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for port in sockets or ():
            port.setblocking(False)
            self._listen(port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for port in sockets or ():
            asyncio.get_running_loop().remove_reader(port)
        await super().shutdown(sockets)

    def _listen(self, port: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(port, self._wait, port)

    def _wait(self, port: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(port)
        turns = min(len(self.server_state.connections), _LONGEST_WAIT)
        loop.call_later(turns * _WAIT_SECONDS, self._take, port)

    def _take(self, port: socket.socket) -> None:
        if self.should_exit:
            return
        with contextlib.suppress(OSError):  # another process was faster
            connection, _ = port.accept()
            connection.setblocking(False)
            self._opening = asyncio.ensure_future(
                asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
            )
        self._listen(port)


class _Workers:
    """Processes that serve one port. One that ends is replaced."""

    def __init__(self, settings: ServerSettings, port: socket.socket) -> None:
        self._settings = settings
        self._port = port
        self._stopping = threading.Event()
        # Not forked: the threads of native libraries do not live on in a fork.
        self._spawning = multiprocessing.get_context("spawn")

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        workers = [self._started() for _ in range(self._settings.workers)]
        failed = False
        try:
            while not failed and not self._stopping.wait(_LOOK_SECONDS):
                for place, (worker, since) in enumerate(workers):
                    if worker.is_alive():
                        continue
                    if time.monotonic() - since < _MIN_LIFE_SECONDS:
                        failed = True
                        break
                    logger.error("worker %s ended (%s) and is replaced", worker.pid, worker.exitcode)
                    workers[place] = self._started()
        finally:
            # Before the workers close theirs: connections to a port that nobody accepts from would be lost.
            self._port.close()
            for worker, _ in workers:
                worker.terminate()
            for worker, _ in workers:
                worker.join()
        if failed:
            raise ConfigError("a worker ended as soon as it was started", fix="The lines above say why")

    def _started(self) -> tuple[BaseProcess, float]:
        worker = self._spawning.Process(target=_serve, args=(self._settings, self._port))
        worker.start()
        return worker, time.monotonic()


def _serve(settings: ServerSettings, port: socket.socket) -> None:
    """One process's part: until SIGTERM or Ctrl+C."""
    config = uvicorn.Config(
        functools.partial(create_app, settings),
        factory=True,
        lifespan="on",
        log_config=_LOGGING,
        access_log=settings.access_log,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    server = _Server if settings.workers == 1 else _SharingServer
    server(config).run([port])


def _listening(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port} ({reason})",
            fix="Choose another with --host and --port",
        ) from error
