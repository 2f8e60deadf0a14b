"""Safety over HTTP, with the packaged models: on by default, off when an operator says so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fallbacks import Talker
from serving import REPLIES, write_index
from starlette.testclient import TestClient

from ranker.home import Home
from ranker.safety import SafetySettings, fixed_message
from ranker.server import ServerSettings, create_app
from ranker.server.schemas import RespondAnswer

RUDE = "Shut the fuck up about your ill dog."
DOG = "I am so sorry about your dog."
CRISIS = "I want to kill myself tonight."


@pytest.fixture
def rude(settings: ServerSettings, home: Home) -> ServerSettings:
    """With a reply in the pool that slipped through when it was built."""
    write_index(home, "ed", [(RUDE, "angry"), *REPLIES["ed"]])
    return settings


def said(client: TestClient, text: str, **more: Any) -> dict[str, Any]:
    body = {"model": "ranker", "messages": [{"role": "user", "content": text}], **more}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    found = answer.json()
    assert isinstance(found, dict)
    return found


def test_a_crisis_gets_the_fixed_message(settings: ServerSettings) -> None:
    talker = Talker()
    message = fixed_message("self-harm")
    with TestClient(create_app(settings, talker)) as client:
        found = client.post("/v1/respond", json={"context": CRISIS, "fallback": "always"}).json()
        chat = said(client, CRISIS, n=3, fallback="always")
        body = {"model": "ranker", "messages": [{"role": "user", "content": CRISIS}], "stream": True}
        events = client.post("/v1/chat/completions", json=body).text
        ranked = client.post("/v1/rank", json={"context": CRISIS}).json()
        numbers = client.get("/metrics").text
    RespondAnswer.model_validate(found, strict=True)
    assert (found["text"], found["source"], found["ranking"]) == (message, "fixed", [])
    assert [choice["message"]["content"] for choice in chat["choices"]] == [message]
    assert chat["ranker"]["source"] == "fixed"
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == message
    assert len(ranked["ranking"]) == 7
    assert talker.asked == []
    assert 'ranker_fallbacks_total{source="fixed"} 3.0' in numbers
    assert 'ranker_safety_total{action="fixed"} 3.0' in numbers


def test_candidates_that_may_not_be_said_are_skipped(rude: ServerSettings) -> None:
    asked = {"context": "my dog is ill"}
    with TestClient(create_app(rude)) as client:
        found = client.post("/v1/respond", json=asked).json()
        ranked = client.post("/v1/rank", json=asked | {"k": 8}).json()
        numbers = client.get("/metrics").text
        chat = said(client, "my dog is ill")
    assert found["text"] == DOG == chat["choices"][0]["message"]["content"]
    assert len(ranked["ranking"]) == 7
    assert RUDE not in [place["text"] for place in ranked["ranking"]]
    assert 'ranker_safety_total{action="skipped"} 2.0' in numbers
    with TestClient(create_app(replace(rude, safety=SafetySettings(enabled=False)))) as client:
        assert client.post("/v1/respond", json=asked).json()["text"] == RUDE


def test_generated_replies_pass_the_same_filter(settings: ServerSettings) -> None:
    with TestClient(create_app(settings, Talker("Oh shut the fuck up."))) as client:
        found = client.post("/v1/respond", json={"context": "my dog is ill", "fallback": "always"}).json()
        body = {"model": "ranker", "messages": [{"role": "user", "content": "my dog is ill"}]}
        events = client.post("/v1/chat/completions", json=body | {"stream": True, "fallback": "always"}).text
        numbers = client.get("/metrics").text
    assert (found["text"], found["source"]) == (DOG, "retrieved")
    assert found["note"].startswith("what the generator 'talker' wrote may not be said")
    assert "fuck" not in events
    assert '"finish_reason":"content_filter"' in events
    assert 'ranker_generations_total{outcome="unsafe"} 2.0' in numbers
    assert 'ranker_safety_total{action="refused"} 2.0' in numbers
