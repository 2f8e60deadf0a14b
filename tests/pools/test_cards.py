"""Cards: reading, finding and making them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.errors import ConfigError, InputError, NotFoundError
from ranker.home import Home
from ranker.pools import create_card, import_raw, list_cards, load_card, raw_data
from ranker.pools.cards import save_card

CARD = """
name = "mine"
title = "Mine"
licence = "CC0-1.0"
commercial_use = true
reader = "generic"
utterances = "response"
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def put(home: Home, name: str, text: str) -> None:
    (home.pools / name).mkdir(parents=True)
    (home.pools / name / "pool.toml").write_text(text)


def test_the_packaged_pools(home: Home) -> None:
    cards = {card.name: card for card in list_cards(home)}
    assert list(cards) == ["dailydialog", "ed", "reddit"]
    assert cards["ed"].sha256 == "56f234d77b7dd1f005fd365bb17769cfe346c3c84295b69bc069c8ccb83be03d"
    assert cards["dailydialog"].size_bytes == 4_475_921
    assert not any(card.commercial_use for card in cards.values())
    assert {card.sample_licence for card in cards.values()} == {"CC0-1.0"}
    assert cards["reddit"].url == ""
    assert "ranker import reddit PATH" in cards["reddit"].how_to_get
    assert [cards[name].next_step for name in ("ed", "reddit")] == [
        "ranker fetch ed",
        "ranker import reddit PATH",
    ]


def test_the_home_comes_before_the_package(home: Home) -> None:
    put(home, "ed", CARD.replace('"mine"', '"ed"'))
    assert load_card("ed", home).title == "Mine"
    assert load_card("reddit", home).title == "Reddit"


def test_an_unknown_pool_suggests_the_nearest(home: Home) -> None:
    with pytest.raises(NotFoundError, match=r"no pool called 'dailydialogue'\. Did you mean 'dailydialog'"):
        load_card("dailydialogue", home)
    with pytest.raises(NotFoundError):
        load_card("../ed", home)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("licence =", "license ="), "Did you mean 'licence'"),
        (('"response"', '"replies"'), "must be one of"),
        (("true", '"yes"'), "must be bool"),
        (('"mine"', '"other"'), "calls its pool 'other'"),
        (('"mine"', '"Mi ne"'), "cannot be the name"),
        (('title = "Mine"', 'title = "Mine"\nurl = "http://example.org/x.zip"'), "without sha256"),
        (('title = "Mine"\n', ""), "title"),
        (("true", "maybe"), "not valid TOML"),
    ],
)
def test_malformed_cards_are_refused_with_their_path(
    home: Home, change: tuple[str, str], message: str
) -> None:
    put(home, "mine", CARD.replace(*change))
    with pytest.raises(ConfigError, match=message):
        load_card("mine", home)


def test_a_pool_of_ones_own_is_saved_with_its_data(home: Home, tmp_path: Path) -> None:
    replies = tmp_path / "replies.txt"
    replies.write_text("Hello there\n")
    card = create_card(home, "mine", licence='say "hi"\n', title="Größe 😀 \\ x")
    with pytest.raises(NotFoundError):
        load_card("mine", home)
    import_raw(card, replies, home, validate=lambda folder: None)
    assert load_card("mine", home) == card
    assert (card.licence, card.title, card.reader) == ('say "hi"', "Größe 😀 \\ x", "generic")
    raw = raw_data(card, home)
    assert not raw.is_sample
    assert (raw.path / "replies.txt").read_text() == "Hello there\n"


def test_names_that_cannot_be_taken(home: Home) -> None:
    with pytest.raises(InputError, match="already"):
        create_card(home, "ed")
    for name in ("", "../x", "A b", "x" * 65):
        with pytest.raises(ConfigError, match="cannot be the name"):
            create_card(home, name)


def test_a_packaged_card_is_not_copied(home: Home) -> None:
    save_card(load_card("ed", home), home)
    assert not (home.pools / "ed" / "pool.toml").exists()
