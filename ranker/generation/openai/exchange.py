"""One POST and its answer over HTTP, every step of which ends in time.

http.client alone is not enough: its timeout is of each read, so a server that drips a byte a second holds its
caller forever, and looking up a name has no timeout at all.
"""

from __future__ import annotations

import http.client
import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ranker.generation.openai.failure import EndpointFailure
from ranker.generation.openai.settings import EndpointSettings

_CHUNK_BYTES = 1 << 14
MAX_ANSWER_BYTES = 1 << 20


class Exchange:
    """Sends a JSON body and reads the head of the answer. No call outlasts `until` (of time.monotonic).

    A context manager that closes the connection. Every method raises EndpointFailure, the constructor too.
    """

    def __init__(
        self,
        endpoint: EndpointSettings,
        headers: Mapping[str, str],
        body: bytes,
        *,
        until: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        with _explained():
            self._wire = _Wire(_connected(endpoint.host, endpoint.port, until), until)
        try:
            with _explained():
                if tls is not None:
                    self._wire.encrypt(tls, endpoint.host)
                connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
                connection.sock = self._wire
                connection.request("POST", endpoint.path, body, {**headers, "Host": endpoint.address})
                self._response = connection.getresponse()
        except BaseException:
            self._wire.hang_up()
            raise

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()
        self._wire.hang_up()

    @property
    def until(self) -> float:
        return self._wire.until

    @until.setter
    def until(self, moment: float) -> None:
        self._wire.until = moment

    @property
    def status(self) -> int:
        return self._response.status

    def header(self, name: str) -> str:
        """Empty where the answer has none of this name."""
        return self._response.headers.get(name) or ""

    def chunks(self, limit: int = MAX_ANSWER_BYTES) -> Iterator[bytes]:
        """The body as it arrives. More than `limit` bytes, or fewer than announced, are a failure."""
        if self.header("Content-Encoding").strip().lower() not in ("", "identity"):
            raise EndpointFailure("answers in a compressed form, which was not asked for")
        # Counted here, because read1() of older Pythons does not count for a keep-alive connection.
        announced, done = self._response.length, 0
        while announced is None or done < announced:
            wanted = _CHUNK_BYTES if announced is None else min(_CHUNK_BYTES, announced - done)
            with _explained():
                data = self._response.read1(wanted)
            if not data:
                break
            done += len(data)
            if done > limit:
                raise EndpointFailure(f"answers with more than {limit:,} bytes")
            yield data
        if announced is not None and done < announced:
            raise EndpointFailure("broke off in the middle of its answer", may_pass=True)


class _Wire:
    """As much of a socket as http.client needs, each operation with the time that is left as its timeout."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket = connected
        self.until = until

    def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        self._socket.settimeout(_left(self.until))  # of the whole handshake
        self._socket = tls.wrap_socket(self._socket, server_hostname=host)

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(_left(self.until))
        self._socket.sendall(data)

    def receive_into(self, buffer: Any) -> int:
        self._socket.settimeout(_left(self.until))
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """http.client closes its socket once the answer has a file of it; see hang_up()."""

    def hang_up(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.receive_into(buffer)


def _connected(host: str, port: int, until: float) -> socket.socket:
    """Tries the host's addresses in turn, each with its share of the time, so that a dead one leaves some."""
    addresses = _addresses(host, port, until)
    failure: OSError = OSError("the host has no address")
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        tried = socket.socket(family, kind, protocol)
        try:
            tried.settimeout(_left(until) / (len(addresses) - place))
            tried.connect(address)
        except OSError as error:
            tried.close()
            failure = error
        else:
            return tried
    raise failure


_Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]


def _addresses(host: str, port: int, until: float) -> _Addresses:
    """The lookup runs in a thread of its own, which is left behind where it takes too long."""
    found: queue.SimpleQueue[_Addresses | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)

    threading.Thread(target=look_up, name="ranker-lookup", daemon=True).start()
    try:
        answer = found.get(timeout=_left(until))
    except queue.Empty:
        raise TimeoutError("looking up the host took too long") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _left(until: float) -> float:
    """Seconds, above 0. Raises TimeoutError where there are none."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


@contextmanager
def _explained() -> Iterator[None]:
    """Turns what sockets, TLS and http.client raise into an EndpointFailure."""
    try:
        yield
    except TimeoutError as error:
        raise EndpointFailure("did not answer in time", may_pass=True) from error
    except ssl.SSLCertVerificationError as error:
        raise EndpointFailure(
            f"has a certificate that is not trusted ({error.verify_message})",
            fix="Name the authority's certificate in SSL_CERT_FILE where it is your own",
        ) from error
    except ssl.SSLError as error:
        raise EndpointFailure(
            f"does not speak TLS as it should ({error.reason})", fix="Check the scheme and port of base_url"
        ) from error
    except socket.gaierror as error:
        may_pass = error.errno == socket.EAI_AGAIN
        raise EndpointFailure(f"cannot be found ({error.strerror})", may_pass=may_pass) from error
    except http.client.IncompleteRead:
        raise EndpointFailure("broke off in the middle of its answer", may_pass=True) from None
    except OSError as error:  # RemoteDisconnected, which is an HTTPException too, among them
        reason = error.strerror or "it hung up without an answer"
        raise EndpointFailure(f"cannot be reached ({reason})", may_pass=True) from error
    except http.client.HTTPException as error:
        # Its message quotes the server, so it goes no further.
        raise EndpointFailure(f"does not speak HTTP as it should ({type(error).__name__})") from None
