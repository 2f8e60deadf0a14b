"""A new version of an index takes over while the server answers; a broken one does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from serving import Rebuild
from starlette.testclient import TestClient

from ranker.encoders import HashingEncoder
from ranker.home import Home
from ranker.server import ServerSettings, create_app
from ranker.server.live import LiveRanker
from ranker.server.metrics import Metrics
from ranker.storage import current


@pytest.fixture
def live(settings: ServerSettings, home: Home) -> LiveRanker:
    return LiveRanker.open(settings, home, Metrics())


def texts(live: LiveRanker) -> set[str]:
    return {place.candidate.text for place in live.ranker.rank("anything", k=50)}


def test_nothing_new_means_no_reload(live: LiveRanker) -> None:
    before = live.ranker
    assert live.reload() is False
    assert live.ranker is before


def test_a_new_version_takes_over_and_the_encoder_stays(live: LiveRanker, rebuild: Rebuild) -> None:
    before = live.ranker
    rebuild("ed", "fresh")
    assert live.reload() is True
    assert live.ranker is not before
    assert live.ranker.encoder is before.encoder
    assert "fresh, number 0." in texts(live)
    assert [pool.candidates for pool in live.pools] == [5, 2]
    # Whoever still works with the old version can, though its files are gone.
    assert "I am so sorry about your dog." in {place.candidate.text for place in before.rank("dog", k=50)}


def test_a_damaged_version_is_refused_until_the_next(
    live: LiveRanker, home: Home, rebuild: Rebuild, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.ranker
    rebuild("ed", "broken")
    folder = current(home.indexes / "ed")
    assert folder is not None
    damaged = next(folder.glob("*candidates.jsonl"))
    damaged.write_bytes(damaged.read_bytes().replace(b"broken", b"BROKEN"))
    assert live.reload() is False
    assert live.ranker is before
    assert "refused" in caplog.text
    caplog.clear()
    assert live.reload() is False  # and it is told once, not every two seconds
    assert caplog.text == ""
    rebuild("ed", "mended")
    assert live.reload() is True
    assert "mended, number 0." in texts(live)


def test_a_version_of_another_encoder_is_refused(
    live: LiveRanker, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live.ranker
    monkeypatch.setattr(HashingEncoder, "fingerprint", "hashing-2-256")
    rebuild("ed", "other")
    assert live.reload() is False  # the other index is still of the first encoder
    assert live.ranker is before


def test_a_removed_index_goes_on_answering(live: LiveRanker, home: Home) -> None:
    (home.indexes / "ed" / "CURRENT").unlink()
    assert live.reload() is False
    assert "I am so sorry about your dog." in texts(live)


def test_the_server_looks_by_itself(settings: ServerSettings, rebuild: Rebuild) -> None:
    with TestClient(create_app(replace(settings, reload_seconds=0.05))) as client:
        rebuild("shop", "fresh")
        for _ in range(200):
            ranking = client.post("/v1/rank", json={"context": "x", "pools": ["shop"]}).json()["ranking"]
            if ranking[0]["text"].startswith("fresh"):
                break
        assert ranking[0]["text"].startswith("fresh")
        assert 'ranker_reloads_total{outcome="done"} 1.0' in client.get("/metrics").text
