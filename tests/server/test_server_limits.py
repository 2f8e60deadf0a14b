"""Keys, limits, the deadline and CORS: what stands before the routes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from ranker.encoders import HashingEncoder
from ranker.errors import ConfigError
from ranker.server import ServerSettings, create_app
from ranker.types import Context, Progress, Vectors

RANK = {"context": "my dog"}


def open_client(settings: ServerSettings) -> TestClient:
    return TestClient(create_app(settings), raise_server_exceptions=False)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Contexts with the word HOLD are not encoded before the event is set."""
    release = threading.Event()
    encode = HashingEncoder.encode_contexts

    def waiting(self: HashingEncoder, contexts: list[Context], progress: Progress | None = None) -> Vectors:
        if any("HOLD" in context.last for context in contexts):
            release.wait(10)
        return encode(self, contexts, progress)

    monkeypatch.setattr(HashingEncoder, "encode_contexts", waiting)
    yield release
    release.set()


def test_without_keys_everybody_may_call(client: TestClient) -> None:
    assert client.post("/v1/rank", json=RANK).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Basic first"}, 401),
        ({"Authorization": "Bearer first"}, 200),
        ({"Authorization": "bearer second"}, 200),
        ({"X-Api-Key": "in the file"}, 200),
        ({"X-Api-Key": "# no key"}, 401),
    ],
)
def test_keys(settings: ServerSettings, tmp_path: Path, headers: dict[str, str], status: int) -> None:
    file = tmp_path / "keys"
    file.write_text("# no key\n\nin the file\n")
    with open_client(replace(settings, api_keys="first, second", api_keys_file=file)) as client:
        answer = client.post("/v1/rank", json=RANK, headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert answer.json()["error"]["code"] == "unauthorized"
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        for path in ("/v1/pools", "/v1/models", "/nothing"):
            assert client.get(path).status_code == 401


def test_asking_for_keys_without_any_is_refused(settings: ServerSettings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the API keys"):
        create_app(replace(settings, api_keys_file=tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="names no API key"):
        create_app(replace(settings, api_keys_file=tmp_path / "empty"))


def test_keys_are_not_shown(settings: ServerSettings) -> None:
    assert "hidden" not in repr(replace(settings, api_keys=("hidden",)))


def test_large_bodies_are_413_whether_announced_or_not(settings: ServerSettings) -> None:
    with open_client(replace(settings, max_body_bytes=1000)) as client:
        announced = client.post("/v1/rank", json={"context": "x" * 1000})
        unannounced = client.post("/v1/rank", content=(b"x" * 100 for _ in range(20)))
        for answer in (announced, unannounced):
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == "too_large"
        assert client.post("/v1/rank", json={"context": "x" * 900}).status_code == 200


def test_cors_is_off_unless_asked_for(client: TestClient, settings: ServerSettings) -> None:
    origin = {"Origin": "https://chat.example.org"}
    assert "access-control-allow-origin" not in client.post("/v1/rank", json=RANK, headers=origin).headers
    with open_client(
        replace(settings, cors_origins=("https://chat.example.org",), api_keys="key")
    ) as allowed:
        asked = origin | {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        preflight = allowed.options("/v1/rank", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example.org"
        refused = allowed.post("/v1/rank", json=RANK, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example.org"


def test_a_late_answer_is_504_and_the_next_is_fine(settings: ServerSettings, held: threading.Event) -> None:
    with open_client(replace(settings, deadline_seconds=0.2, threads=2, batch_wait_ms=0.0)) as client:
        late = client.post("/v1/rank", json={"context": "HOLD"})
        assert late.status_code == 504
        assert late.json()["error"] == {
            "code": "deadline_exceeded",
            "message": "no answer within 0.2 seconds",
        }
        assert client.post("/v1/rank", json=RANK).status_code == 200
        assert 'ranker_rejections_total{code="deadline_exceeded"} 1.0' in client.get("/metrics").text
        held.set()


def test_too_many_at_once_are_429_and_the_others_answered(
    settings: ServerSettings, held: threading.Event
) -> None:
    app = create_app(replace(settings, max_concurrency=3, threads=1))

    async def work() -> None:
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            asked = [
                asyncio.create_task(client.post("/v1/rank", json={"context": f"HOLD {number}"}))
                for number in range(8)
            ]
            done, _ = await asyncio.wait(asked, timeout=1)
            assert {answer.result().status_code for answer in done} == {429}
            assert len(done) == 5
            refused = next(iter(done)).result()
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "overloaded"
            assert (await client.get("/healthz")).status_code == 200
            held.set()
            statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
            assert statuses == [200] * 3 + [429] * 5

    asyncio.run(work())


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", 70000), ("workers", 0), ("deadline_seconds", 0.0), ("threads", 0), ("max_k", 0)],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ServerSettings(**{name: value})  # type: ignore[arg-type] # on purpose
