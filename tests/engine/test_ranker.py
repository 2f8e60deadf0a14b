from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from ranker.bundle import PoolNote, write_bundle
from ranker.encoders import HashingEncoder
from ranker.engine import Filters, Ranker
from ranker.errors import InputError, MismatchError, NotFoundError
from ranker.home import Home
from ranker.types import Candidate, Context, Label

TEXTS = {
    "ed": [
        ("Congratulations on the promotion, you earned it!", "proud"),
        ("I am so sorry about your dog.", "sad"),
        ("That break-in must have been frightening.", "terrified"),
        ("What a lovely surprise party!", "surprised"),
        ("I hope the exam goes well tomorrow.", "anxious"),
    ],
    "shop": [("Your parcel is on its way.", ""), ("The promotion ends on Friday, do not miss it!", "")],
}


def make_index(home: Home, name: str, encoder: HashingEncoder, *, commercial: bool = False) -> None:
    candidates = [
        Candidate(f"{name}:{row}", text, name, (Label("emotion", emotion),) if emotion else ())
        for row, (text, emotion) in enumerate(TEXTS[name])
    ]
    write_bundle(
        home.indexes / name,
        name=name,
        candidates=candidates,
        vectors=encoder.encode_candidates([candidate.text for candidate in candidates]),
        encoder_name="hashing",
        encoder_fingerprint=encoder.fingerprint,
        pools=[
            PoolNote(name, name, "CC0-1.0" if commercial else "CC-BY-NC-4.0", commercial, is_sample=False)
        ],
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home, encoder = Home(tmp_path), HashingEncoder()
    make_index(home, "ed", encoder)
    make_index(home, "shop", encoder, commercial=True)
    return home


@pytest.fixture
def ranker(home: Home) -> Ranker:
    return Ranker.open("ed", "shop", home=home)


def test_scores_are_inner_products_best_first(ranker: Ranker) -> None:
    ranking = ranker.rank("I got a promotion at work", k=7)
    assert len(ranking) == 7
    vector = ranker.encoder.encode_contexts([Context.of("I got a promotion at work")])[0]
    for place in ranking:
        own = ranker.encoder.encode_candidates([place.candidate.text])[0]
        assert place.score == pytest.approx(float(own @ vector), abs=1e-5)
    assert [place.rank for place in ranking] == list(range(1, 8))
    assert [place.score for place in ranking] == sorted((place.score for place in ranking), reverse=True)
    assert {place.candidate.pool for place in ranking} == {"ed", "shop"}


def test_k_beyond_the_pool_and_k_zero(ranker: Ranker) -> None:
    assert len(ranker.rank("hello", k=1000)) == 7
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        ranker.rank("hello", k=0)


@pytest.mark.parametrize("text", ["", "   \n\t", [], ["", " "]])
def test_empty_context_is_refused(ranker: Ranker, text: str | list[str]) -> None:
    with pytest.raises(InputError, match="empty"):
        ranker.rank(text)


@pytest.mark.parametrize(
    "text", ["🎉🎉🎉", "a" * 100_000, "word " * 20_000, "broken \udc80 text", "\x00\x01 a"]
)
def test_strange_text_is_answered(ranker: Ranker, text: str) -> None:
    assert len(ranker.rank(text, k=3)) == 3


def test_rank_many_equals_rank(ranker: Ranker) -> None:
    contexts: list[str | list[str] | Context] = ["my dog", ["hello", "an exam"], Context.of("a parcel")]
    together = ranker.rank_many(contexts, k=3)
    alone = [ranker.rank(context, k=3) for context in contexts]
    assert [[p.candidate.id for p in r] for r in together] == [[p.candidate.id for p in r] for r in alone]
    assert ranker.rank_many([]) == []


def test_score_keeps_the_order_given(ranker: Ranker) -> None:
    scores = ranker.score("my dog died", ["I am so sorry about your dog.", "Nice parcel"])
    assert scores[0] > scores[1]
    assert ranker.score("my dog died", []) == []
    with pytest.raises(InputError, match="list"):
        ranker.score("my dog died", "one text")


def test_echoes_and_repeats_are_left_out(ranker: Ranker) -> None:
    echoed = "I am so sorry about your dog"
    assert echoed + "." not in [place.candidate.text for place in ranker.rank(echoed, k=7)]
    assert ranker.rank(echoed, k=1, keep_echoes=True)[0].candidate.text == echoed + "."
    turns = ["my dog is ill"]
    first = ranker.respond(turns).text
    second = ranker.respond([*turns, first, "my dog is ill, I said"]).text
    assert first != second


def test_filters_apply_inside_the_search(ranker: Ranker) -> None:
    only = ranker.rank("my dog", k=5, filters=Filters(emotions=("anxious",)))
    assert [place.candidate.text for place in only] == ["I hope the exam goes well tomorrow."]
    shop = ranker.rank("my dog", k=5, filters=Filters(pools=("shop",)))
    assert {place.candidate.pool for place in shop} == {"shop"}
    free = ranker.rank("my dog", k=7, filters=Filters(commercial_only=True))
    assert {place.candidate.pool for place in free} == {"shop"}
    assert len(ranker.rank("my dog", filters=Filters(licences=("CC-BY-NC-4.0",)))) == 5


def test_unknown_filter_values(ranker: Ranker) -> None:
    with pytest.raises(NotFoundError, match="Did you mean 'shop'"):
        ranker.rank("x", filters=Filters(pools=("shopp",)))
    with pytest.raises(InputError, match="no candidate is allowed"):
        ranker.respond("x", filters=Filters(emotions=("proud",), pools=("shop",)))


def test_diversity_changes_the_order_not_the_first(ranker: Ranker) -> None:
    plain = ranker.rank("a promotion", k=7)
    varied = ranker.rank("a promotion", k=7, diversity=0.7)
    assert varied[0].candidate.id == plain[0].candidate.id
    assert {p.candidate.id for p in varied} == {p.candidate.id for p in plain}
    with pytest.raises(InputError, match="between 0 and 1"):
        ranker.rank("x", diversity=1.5)


def test_uncalibrated_encoder_has_no_confidence(ranker: Ranker) -> None:
    response = ranker.respond("my dog died")
    assert response.confidence is None
    assert response.source == "retrieved"
    assert response.ranking is not None
    assert response.text == response.ranking[0].candidate.text


def test_unknown_index_suggests_the_nearest(home: Home) -> None:
    with pytest.raises(NotFoundError, match=r"Did you mean 'shop'\?.*ranker build-index --pool shopp"):
        Ranker.open("shopp", home=home)


def test_another_encoder_is_refused(home: Home) -> None:
    with pytest.raises(MismatchError, match="ranker build-index --pool ed"):
        Ranker.open("ed", home=home, encoder=HashingEncoder(dim=64))


def test_one_ranker_in_many_threads(ranker: Ranker) -> None:
    expected = [place.candidate.id for place in ranker.rank("my dog", k=5)]
    found: list[list[str]] = []

    def work() -> None:
        found.extend([place.candidate.id for place in ranker.rank("my dog", k=5)] for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 160
    assert all(ids == expected for ids in found)


def test_merging_equals_one_search_over_all(ranker: Ranker) -> None:
    texts = [text for name in ("ed", "shop") for text, _ in TEXTS[name]]
    context = "congratulations on your parcel"
    order = np.argsort(-np.array(ranker.score(context, texts)), kind="stable")
    assert [place.candidate.text for place in ranker.rank(context, k=7)] == [texts[i] for i in order]


def test_respond_tells_the_users_emotions(ranker: Ranker) -> None:
    labels = ranker.respond("I am so afraid of the storm tonight").labels
    assert len(labels) == 3
    assert {label.kind for label in labels} == {"emotion"}
    assert labels[0].name in {"afraid", "terrified", "anxious", "apprehensive"}
    assert 1 >= labels[0].probability >= labels[1].probability >= labels[2].probability > 0


def test_vectors_encoded_before_give_the_same(ranker: Ranker) -> None:
    contexts = [Context.of("my dog"), Context.of(["hello", "an exam"])]
    vectors = ranker.encoder.encode_contexts(contexts)
    assert ranker.rank_vectors(contexts, vectors, 3) == ranker.rank_many(contexts, 3)
    assert ranker.respond_vector(contexts[0], vectors[:1]) == ranker.respond(contexts[0])
    assert len(ranker.respond_vector(contexts[0], vectors[:1], k=2).ranking or ()) == 2


def test_blocked_candidates_are_left_out_and_the_next_move_up(ranker: Ranker) -> None:
    first, second, *_ = ranker.rank("my dog", k=7)
    left = ranker.rank("my dog", k=7, filters=Filters(blocked=frozenset({first.candidate.id})))
    assert len(left) == 6
    assert (left[0].candidate, left[0].rank) == (second.candidate, 1)
    every = frozenset(place.candidate.id for place in ranker.rank("my dog", k=7, keep_echoes=True))
    assert len(ranker.rank("my dog", filters=Filters(blocked=every))) == 0
