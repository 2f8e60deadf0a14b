"""Moving candidates up by their labels, and by the intent that a reply is likely to have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ranker.bundle import Bundle, PoolNote, write_bundle
from ranker.encoders import HashingEncoder
from ranker.engine import Boosts, Filters, Ranker
from ranker.engine.boosts import RowBonus, boosted_search
from ranker.errors import InputError, MismatchError, NotFoundError
from ranker.home import Home
from ranker.labels import INTENTS, VectorHead, write_head
from ranker.labels.head import Layer
from ranker.labels.store import Manifest, Training
from ranker.types import Calibration, Candidate, Label

CONTEXT = "my old dog is ill today"
LABELS = {
    "ed": [
        ("My old dog is ill too.", "sad", "sympathizing"),
        ("Your dog is ill?", "anxious", "questioning"),
        ("I hope he feels well today.", "hopeful", "wishing"),
        ("Congratulations on your promotion!", "proud", "encouraging"),
        ("What is your promotion about?", "proud", "questioning"),
    ],
    "shop": [("Is it an old dog?", "", "questioning"), ("The parcel is on its way.", "", "")],
}


class Calibrated(HashingEncoder):
    @property
    def calibration(self) -> Calibration | None:
        return Calibration(4.0, -1.0)


def make_index(home: Home, name: str, filler: int = 0) -> None:
    encoder = HashingEncoder()
    rows = LABELS[name] + [(f"my old dog number {number}", "", "neutral") for number in range(filler)]
    candidates = [
        Candidate(
            f"{name}:{row}",
            text,
            name,
            (
                *([Label("emotion", emotion)] if emotion else []),
                *([Label("intent", intent)] if intent else []),
            ),
        )
        for row, (text, emotion, intent) in enumerate(rows)
    ]
    write_bundle(
        home.indexes / name,
        name=name,
        candidates=candidates,
        vectors=encoder.encode_candidates([candidate.text for candidate in candidates]),
        encoder_name="hashing",
        encoder_fingerprint=encoder.fingerprint,
        pools=[PoolNote(name, name, "CC0-1.0", True, is_sample=False)],
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    make_index(made, "ed")
    make_index(made, "shop")
    return made


@pytest.fixture
def ranker(home: Home) -> Ranker:
    return Ranker.open("ed", "shop", home=home)


def write_predictor(home: Home, likely: str, encoder: str = "hashing-1-256") -> None:
    """One that gives `likely` e^4 times the probability of any other intent, whatever the context."""
    bias = np.zeros(len(INTENTS), np.float32)
    bias[INTENTS.index(likely)] = 4.0
    head = VectorHead("intent", INTENTS, encoder, (Layer(np.zeros((256, len(INTENTS)), np.float32), bias),))
    manifest = Manifest("intent", INTENTS, Training("made up", "CC0-1.0", 1))
    write_head(home.models / "labels" / "response-intent", manifest, head)


def scores(ranker: Ranker, boosts: Boosts | None = None) -> dict[str, float]:
    return {place.candidate.text: place.score for place in ranker.rank(CONTEXT, k=9, boosts=boosts)}


def test_a_boost_adds_its_weight(ranker: Ranker) -> None:
    plain = scores(ranker)
    boosted = scores(ranker, Boosts(emotions=("proud",), intents=("questioning",), weight=0.25))
    added = {text: round(boosted[text] - plain[text], 5) for text in plain}
    assert added == {
        "My old dog is ill too.": 0.0,
        "Your dog is ill?": 0.25,
        "I hope he feels well today.": 0.0,
        "Congratulations on your promotion!": 0.25,
        "What is your promotion about?": 0.5,
        "Is it an old dog?": 0.25,
        "The parcel is on its way.": 0.0,
    }
    assert list(boosted.values()) == sorted(boosted.values(), reverse=True)


def test_a_boosted_candidate_rises_from_below_the_cut(tmp_path: Path) -> None:
    """From the very end of 500 candidates, with k = 1."""
    home = Home(tmp_path)
    make_index(home, "ed", filler=500)
    ranker = Ranker.open("ed", home=home)
    whole = ranker.rank(CONTEXT, k=505)
    assert whole[-1].candidate.label("emotion") == "proud"
    boosts = Boosts(emotions=("proud",), weight=3.0)
    assert ranker.rank(CONTEXT, k=1, boosts=boosts)[0].candidate.label("emotion") == "proud"
    expected = sorted(
        (-(place.score + 0.2 * (place.candidate.label("intent") == "questioning")), place.candidate.id)
        for place in whole
    )[:40]
    found = ranker.rank(CONTEXT, k=40, boosts=Boosts(intents=("questioning",), weight=0.2))
    assert [round(place.score, 4) for place in found] == [round(-score, 4) for score, _ in expected]


def test_no_deeper_than_needed(home: Home) -> None:
    bundle = Bundle.open(home.indexes / "ed")
    vector = HashingEncoder().encode_candidates([CONTEXT])
    bonus = RowBonus(np.full(bundle.rows, 0.5, np.float32), highest=0.5)
    hits, added = boosted_search(bundle, vector, 2, None, bonus)
    plain = bundle.search(vector, 2)
    np.testing.assert_allclose(hits.scores, plain.scores + 0.5)
    np.testing.assert_array_equal(hits.ids, plain.ids)
    assert added.tolist() == [[0.5, 0.5]]
    nothing = np.zeros(bundle.rows, np.bool_)
    assert boosted_search(bundle, vector, 2, nothing, bonus)[0].ids.shape == (1, 0)


def test_confidence_is_of_the_plain_score(home: Home) -> None:
    ranker = Ranker.open("ed", home=home, encoder=Calibrated())
    plain = ranker.rank(CONTEXT, k=5)
    boosts = Boosts(emotions=("proud",), intents=("questioning",), weight=2.0)
    boosted = ranker.rank(CONTEXT, k=5, boosts=boosts)
    assert boosted[0].candidate.text == "What is your promotion about?"
    own = next(place.score for place in plain if place.candidate.id == boosted[0].candidate.id)
    assert boosted.confidence == pytest.approx(Calibration(4.0, -1.0).probability(own), abs=1e-5)


def test_boosts_with_filters_and_respond(ranker: Ranker) -> None:
    boosts = Boosts(intents=("questioning",), weight=2.0)
    filters = Filters(emotions=("proud",))
    found = ranker.rank(CONTEXT, filters=filters, boosts=boosts)
    assert [place.candidate.label("intent") for place in found] == ["questioning", "encouraging"]
    assert ranker.respond(CONTEXT, filters=filters, boosts=boosts).text == "What is your promotion about?"


def test_wrong_boosts(ranker: Ranker) -> None:
    with pytest.raises(NotFoundError, match="Did you mean 'questioning'"):
        ranker.rank(CONTEXT, boosts=Boosts(intents=("question",)))
    for wrong in (-0.1, float("nan"), 11.0):
        with pytest.raises(InputError, match="within 0 and 10"):
            Boosts(weight=wrong)
    assert scores(ranker, Boosts()) == scores(ranker) == scores(ranker, Boosts(emotions=("sad",), weight=0.0))


def test_likely_intents_count(home: Home, ranker: Ranker) -> None:
    """log p of the likely one, of another, and the average for a candidate without intent."""
    write_predictor(home, "wishing")
    plain = scores(ranker)
    boosted = scores(ranker, Boosts(response_intent=0.1))
    total = np.exp(4.0) + 40
    for text, intent in [(text, intent) for rows in LABELS.values() for text, _, intent in rows]:
        likely = -np.log(41) if not intent else (4.0 if intent == "wishing" else 0.0) - np.log(total)
        assert boosted[text] - plain[text] == pytest.approx(0.1 * likely, abs=1e-5)
    both = scores(ranker, Boosts(intents=("wishing",), weight=0.5, response_intent=0.1))
    assert both["I hope he feels well today."] - boosted["I hope he feels well today."] == pytest.approx(0.5)


def test_without_a_predictor_for_this_encoder(home: Home, ranker: Ranker) -> None:
    with pytest.raises(NotFoundError, match="ranker train-labels response-intent"):
        ranker.rank(CONTEXT, boosts=Boosts(response_intent=0.1))
    write_predictor(home, "wishing", encoder="another")
    with pytest.raises(MismatchError, match="ranker train-labels response-intent"):
        ranker.rank(CONTEXT, boosts=replace(Boosts(), response_intent=0.1))
