"""POST /v1/feedback."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from ranker.cli.feedback import apply_feedback
from ranker.feedback import FEEDBACK_FILE, Edit, FeedbackStore, Report
from ranker.home import Home
from ranker.server import ServerSettings, create_app

REPORT: dict[str, Any] = {
    "kind": "report",
    "context": ["my dog is very ill"],
    "candidate_id": "ed:1",
    "text": "I am so sorry about your dog.",
    "pool": "ed",
    "reason": "hollow",
}
EDIT = {**REPORT, "kind": "edit", "edited_text": "What does the vet say about your dog?"}


def test_feedback_is_on_disk_when_it_answers(client: TestClient, home: Home) -> None:
    assert client.post("/v1/feedback", json=REPORT).json() == {"id": 1}
    answer = client.post("/v1/feedback", json=EDIT)
    assert (answer.status_code, answer.json()) == (201, {"id": 2})
    with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
        report, edit = store.entries()
    assert isinstance(report, Report)
    assert (report.context.turns, report.text, report.reason) == (
        ("my dog is very ill",),
        "I am so sorry about your dog.",
        "hollow",
    )
    assert isinstance(edit, Edit)
    assert (edit.candidate_id, edit.pool, edit.edited_text) == ("ed:1", "ed", EDIT["edited_text"])


def test_a_reported_reply_is_not_given_again(client: TestClient) -> None:
    body = {"context": REPORT["context"], "k": 7}
    assert client.post("/v1/respond", json=body).json()["id"] == "ed:1"
    client.post("/v1/feedback", json=REPORT)
    answer = client.post("/v1/respond", json=body).json()
    assert answer["id"] != "ed:1"
    assert "ed:1" not in [place["id"] for place in answer["ranking"]]


def test_an_edit_is_given_once_it_is_applied(settings: ServerSettings, home: Home) -> None:
    with TestClient(create_app(settings)) as client:
        client.post("/v1/feedback", json=EDIT)
    with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
        assert apply_feedback(store, home).added == {"ed": 1}
    with TestClient(create_app(settings)) as client:
        answer = client.post("/v1/respond", json={"context": "what does the vet say about my dog"}).json()
    assert answer["text"] == EDIT["edited_text"]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "praise"},
        {"kind": "edit"},
        {"context": []},
        {"context": [" "]},
        {"context": "one text"},
        {"context": ["turn"] * 101},
        {"context": ["x" * 10_001]},
        {"text": ""},
        {"text": " \n "},
        {"text": "x" * 4_001},
        {"candidate_id": "x" * 301},
        {"reason": "x" * 1_001},
        {"edited_text": "not in a report"},
        {"unknown": 1},
        {"kind": "edit", "edited_text": " "},
        {"kind": "edit", "edited_text": REPORT["text"]},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_what_cannot_be_used_is_refused(client: TestClient, home: Home, change: dict[str, Any]) -> None:
    answer = client.post("/v1/feedback", json={**REPORT, **change})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_request"
    with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
        assert store.entries() == []


def test_keys_guard_it_and_it_can_be_turned_off(settings: ServerSettings) -> None:
    with TestClient(create_app(dataclasses.replace(settings, api_keys=("secret",)))) as client:
        assert client.post("/v1/feedback", json=REPORT).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert client.post("/v1/feedback", json=REPORT, headers=headers).status_code == 201
        assert client.get("/").status_code == 200
    with TestClient(create_app(dataclasses.replace(settings, feedback=False, page=False))) as client:
        assert client.post("/v1/feedback", json=REPORT).status_code == 404
        assert client.get("/").status_code == 404


def test_a_full_store_refuses_and_says_so(settings: ServerSettings, home: Home) -> None:
    with TestClient(create_app(dataclasses.replace(settings, max_feedback=2))) as client:
        for _ in range(2):
            assert client.post("/v1/feedback", json=REPORT).status_code == 201
        answer = client.post("/v1/feedback", json=EDIT)
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "feedback_full"
        assert int(answer.headers["Retry-After"]) > 0
        assert str(home.root) not in answer.text
        with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
            store.settle([1], "dismissed")
        assert client.post("/v1/feedback", json=EDIT).json() == {"id": 3}
