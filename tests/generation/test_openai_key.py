"""The generator `openai` gives its key to nobody but the endpoint: messages, settings, encryption."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import endpoints
import pytest
from endpoints import CONTEXT, KEY, TEXT, fails, fallback, serving

from ranker.errors import ConfigError
from ranker.generation.openai import EndpointSettings

# The key


@pytest.fixture
def key_variable(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TOY_KEY", KEY)
    return "TOY_KEY"


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
@pytest.mark.parametrize("shown", [KEY, f"{KEY[:7]}*****{KEY[-4:]}"])
def test_an_endpoint_that_shows_the_key(status: int, shown: str, key_variable: str) -> None:
    answer = endpoints.whole({"error": {"message": f"Incorrect API key provided: {shown}"}}, status)
    with serving(answer) as endpoint, fails() as messages:
        fallback(endpoint, key_variable=key_variable).reply(CONTEXT)
    assert KEY[:6] not in messages[0]
    if status in (401, 403):
        assert messages[0].endswith(". Check the key in $TOY_KEY")


def test_an_echo_of_the_key_in_broken_http(key_variable: str) -> None:
    with serving(endpoints.raw(f"HTTP/9 Bearer {KEY}\r\n".encode())) as endpoint, fails() as messages:
        fallback(endpoint, key_variable=key_variable).reply(CONTEXT)
    assert KEY not in messages[0]


def test_no_object_holds_the_key(key_variable: str) -> None:
    with serving(endpoints.text(TEXT)) as endpoint:
        generator = fallback(endpoint, key_variable=key_variable)
        reply = generator.reply(CONTEXT)
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(reply) + repr(generator) + repr(vars(generator))


@pytest.mark.parametrize("value", ["", "   ", "two words", "line\nbreak", "ключ"])
def test_a_key_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_KEY", value)
    with serving(endpoints.text(TEXT)) as endpoint, fails() as messages:
        fallback(endpoint, key_variable="TOY_KEY").reply(CONTEXT)
    assert "$TOY_KEY" in messages[0]
    assert not value.strip() or value not in messages[0]
    assert endpoint.requests == []


def test_an_endpoint_that_wants_a_key() -> None:
    with serving(endpoints.whole({}, 401)) as endpoint, fails() as messages:
        fallback(endpoint).reply(CONTEXT)
    assert messages[0].endswith("answers 401 Unauthorized. Name the key: key_variable in [openai]")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1", "[::1]:8080"])
def test_a_key_may_stay_on_this_machine(host: str) -> None:
    EndpointSettings(f"http://{host}/v1", "toy", "TOY_KEY")


@pytest.mark.parametrize("host", ["llm.example", "10.0.0.7:8080", "127.0.0.1.example", "localhost.example"])
def test_a_key_is_not_sent_in_the_clear(host: str) -> None:
    with pytest.raises(ConfigError, match="would send the key over plain http"):
        EndpointSettings(f"http://{host}/v1", "toy", "TOY_KEY")
    EndpointSettings(f"http://{host}/v1", "toy", "TOY_KEY", allow_plain_key=True)
    EndpointSettings(f"http://{host}/v1", "toy")
    EndpointSettings(f"https://{host}/v1", "toy", "TOY_KEY")


URL = "https://llm.example/v1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_url": "ftp://llm.example/v1"}, "must begin with https:// or http://"),
        ({"base_url": "file:///etc/passwd"}, "must begin with https:// or http://"),
        ({"base_url": "llm.example/v1"}, "must begin with https:// or http://"),
        ({"base_url": "https:///v1"}, "must begin with https:// or http:// and a host"),
        ({"base_url": "https://llm.example:port/v1"}, "is not a URL"),
        ({"base_url": "https://[::1/v1"}, "is not a URL"),
        ({"base_url": "https://llm..example/v1"}, "is not a URL"),
        ({"base_url": "https://llm.example/v1\r\nX: y"}, "printable ASCII"),
        ({"base_url": f"https://user:{KEY}@llm.example/v1"}, "may not hold a name or password"),
        ({"base_url": f"https://llm.example/v1?key={KEY}"}, "may not have a query"),
        ({"model": " "}, "has no model"),
        ({"key_variable": KEY}, "must be the name of an environment variable"),
        ({"key_variable": "gsk_4f9a8b7c6d5e"}, "must be the name of an environment variable"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"timeout_seconds": 0.0}, "timeout_seconds must be above 0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds must be above 0"),
        ({"requests_per_minute": 0}, "requests_per_minute must be above 0"),
    ],
)
def test_settings_that_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EndpointSettings(**({"base_url": URL, "model": "toy"} | values))  # type: ignore[arg-type] # see the table
    assert message in str(caught.value)
    assert KEY not in str(caught.value)
    assert "4f9a" not in str(caught.value)


# Encryption


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of localhost in one file, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=20)
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


def encrypting(certificate: Path) -> Callable[[socket.socket], socket.socket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return lambda connection: context.wrap_socket(connection, server_side=True)


def test_an_encrypted_endpoint(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_KEY", KEY)
    answers = (endpoints.text(TEXT), endpoints.chunked(endpoints.events(TEXT), 5))
    with serving(*answers, wrap=encrypting(certificate)) as endpoint:
        url = f"https://localhost:{endpoint.port}/v1"
        with fails() as messages:
            fallback(endpoint, base_url=url, key_variable="TOY_KEY").reply(CONTEXT)
        assert "has a certificate that is not trusted (self-signed certificate)" in messages[0]
        assert endpoint.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
        generator = fallback(endpoint, base_url=url, key_variable="TOY_KEY")
        assert generator.reply(CONTEXT).text == TEXT
        assert "".join(generator.stream(CONTEXT)) == TEXT


def slowly(connection: socket.socket) -> socket.socket:
    time.sleep(1)
    return connection


@pytest.mark.parametrize("wrap", [None, slowly], ids=["plain", "silent"])
def test_an_endpoint_that_should_be_encrypted(wrap: Callable[[socket.socket], socket.socket] | None) -> None:
    with serving(endpoints.text(TEXT), wrap=wrap) as endpoint, fails(within=1.5) as messages:
        url = endpoint.url.replace("http:", "https:")
        fallback(endpoint, max_seconds=0.3, base_url=url).reply(CONTEXT)
    assert endpoint.address in messages[0]
    assert endpoint.requests == []
