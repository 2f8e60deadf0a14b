"""The native routes, and the one shape of errors."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from ranker import Ranker
from ranker.engine.shapes import ranking_as_json
from ranker.home import Home
from ranker.server import ServerSettings, create_app
from ranker.server.schemas import PoolsAnswer, RankAnswer, RespondAnswer, ScoreAnswer


def test_rank_gives_what_the_ranker_gives(client: TestClient, home: Home) -> None:
    answer = client.post("/v1/rank", json={"context": ["hello", "my dog is ill"], "k": 3})
    assert answer.status_code == 200
    expected = Ranker.open("ed", "shop", home=home).rank(["hello", "my dog is ill"], k=3)
    assert answer.json() == ranking_as_json(expected)
    RankAnswer.model_validate(answer.json(), strict=True)


def test_a_text_is_a_context_of_one_turn(client: TestClient) -> None:
    as_text = client.post("/v1/rank", json={"context": "my dog"}).json()
    as_list = client.post("/v1/rank", json={"context": ["my dog"]}).json()
    assert as_text == as_list
    assert as_text["context"] == ["my dog"]


def test_rank_honours_pools_filters_and_diversity(client: TestClient) -> None:
    body = {"context": "promotion", "k": 7, "pools": ["shop"]}
    assert {place["pool"] for place in client.post("/v1/rank", json=body).json()["ranking"]} == {"shop"}
    body = {"context": "promotion", "filters": {"emotions": ["anxious"]}}
    assert [p["text"] for p in client.post("/v1/rank", json=body).json()["ranking"]] == [
        "I hope the exam goes well tomorrow."
    ]
    assert client.post("/v1/rank", json={"context": "x", "diversity": 0.5}).status_code == 200


def test_respond_gives_one_reply_and_what_is_known_of_it(client: TestClient) -> None:
    answer = client.post("/v1/respond", json={"context": "my dog is very ill, I am sad", "k": 2}).json()
    RespondAnswer.model_validate(answer, strict=True)
    assert answer["text"] == "I am so sorry about your dog."
    assert (answer["source"], answer["pool"], answer["id"]) == ("retrieved", "ed", "ed:1")
    assert answer["emotion"] == answer["labels"][0]["name"]
    assert [place["rank"] for place in answer["ranking"]] == [1, 2]


def test_score_keeps_the_order_given(client: TestClient, home: Home) -> None:
    candidates = ["Nice parcel", "I am so sorry about your dog."]
    answer = client.post("/v1/score", json={"context": "my dog died", "candidates": candidates}).json()
    ScoreAnswer.model_validate(answer, strict=True)
    expected = Ranker.open("ed", home=home).score("my dog died", candidates)
    assert answer["scores"] == pytest.approx(expected, abs=1e-4)


def test_pools_tell_what_may_be_asked_for(client: TestClient) -> None:
    answer = client.get("/v1/pools").json()
    PoolsAnswer.model_validate(answer, strict=True)
    assert [(pool["name"], pool["index"], pool["candidates"]) for pool in answer["pools"]] == [
        ("ed", "ed", 5),
        ("shop", "shop", 2),
    ]
    assert "proud" in answer["emotions"]


def test_a_reported_candidate_is_not_given_again(client: TestClient) -> None:
    asked = {"context": "my dog is very ill"}
    first = client.post("/v1/respond", json=asked).json()
    report = {
        "kind": "report",
        "context": ["my dog is very ill"],
        "text": first["text"],
        "candidate_id": first["id"],
    }
    assert client.post("/v1/feedback", json=report).status_code == 201
    second = client.post("/v1/respond", json=asked).json()
    ranked = client.post("/v1/rank", json=asked | {"k": 7}).json()
    chat = client.post(
        "/v1/chat/completions",
        json={"model": "ranker", "messages": [{"role": "user", "content": "my dog is very ill"}]},
    ).json()
    assert first["id"] not in {
        second["id"],
        chat["ranker"]["id"],
        *(place["id"] for place in ranked["ranking"]),
    }
    assert len(ranked["ranking"]) == 6


def test_stages_are_in_the_header(client: TestClient) -> None:
    timing = client.post("/v1/rank", json={"context": "hello"}).headers["server-timing"]
    assert [part.split(";")[0].strip() for part in timing.split(",")] == ["queue", "encode", "rank", "total"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"context": ""}, "context"),
        ({"context": ["", " "]}, "context: the context is empty"),
        ({"context": []}, "context"),
        ({"context": ["x"] * 101}, "at most 100 turns"),
        ({"context": "x", "k": 0}, "k:"),
        ({"context": "x", "k": 101}, "k: at most 100"),
        ({"context": "x", "diversity": 2}, "diversity"),
        ({"contxt": "x"}, "contxt: Extra inputs are not permitted"),
        ({"context": "x", "pools": ["shopp"]}, "Did you mean 'shop'?"),
        ({"context": "x", "filters": {"emotions": ["prowd"]}}, "Did you mean 'proud'?"),
        ({"context": {"secret": 1}}, "context"),
        ([], "body"),
    ],
)
def test_what_cannot_be_used_is_422(client: TestClient, body: object, message: str) -> None:
    answer = client.post("/v1/rank", json=body)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["code"] == "invalid_request"
    assert message in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def test_empty_candidates_are_422(client: TestClient) -> None:
    for candidates in ([], [""], ["  "], ["x"] * 1001):
        answer = client.post("/v1/score", json={"context": "x", "candidates": candidates})
        assert answer.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/rank", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_errors_of_the_router_have_the_shape(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def test_an_unexpected_error_tells_nothing(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:

        def broken(*_: object, **__: object) -> None:
            raise OSError("/secret/place is gone")

        monkeypatch.setattr(Ranker, "rank_vectors", broken)
        answer = client.post("/v1/rank", json={"context": "hello"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert "/secret/place is gone" in caplog.text


def test_health_metrics_and_docs(client: TestClient) -> None:
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}
    client.post("/v1/rank", json={"context": "hello"})
    client.get("/nothing")
    numbers = client.get("/metrics").text
    assert 'ranker_requests_total{route="/v1/rank",status="200"} 1.0' in numbers
    assert 'ranker_requests_total{route="other",status="404"} 1.0' in numbers
    assert 'ranker_stage_seconds_count{stage="encode"} 1.0' in numbers
    assert "ranker_candidates 7.0" in numbers
    assert 'ranker_reloads_total{outcome="done"} 0.0' in numbers
    assert 'ranker_rejections_total{code="overloaded"} 0.0' in numbers
    page = client.get("/docs").text
    assert "/v1/chat/completions" in page
    assert "http://" not in page
    assert "https://" not in page
