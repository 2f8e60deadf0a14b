"""`ranker feedback`: reported replies do not come back, and edits are learnt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ranker.bundle import Bundle
from ranker.cli.feedback import app, apply_feedback
from ranker.corpora import ReadReport, pairs, read_dialogues
from ranker.engine import Ranker, index_names
from ranker.errors import NotFoundError
from ranker.feedback import FEEDBACK_FILE, FeedbackStore
from ranker.home import EMBEDDED, Home

BETTER = {
    "My hamster escaped from its cage last night.": "Oh no, I hope your hamster turns up soon.",
    "I burnt the lasagne and guests are coming.": "Burnt lasagne happens. Could you order pizza instead?",
    "My violin exam is tomorrow and I can't sleep.": "Nobody sleeps before a violin exam. Which piece is it?",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(home: Home) -> FeedbackStore:
    return FeedbackStore.open(home.root / FEEDBACK_FILE)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_stream_of_feedback_is_learnt(home: Home, store: FeedbackStore, tmp_path: Path) -> None:
    """People talk, report what is bad and edit what is weak; the operator applies it once, then once more."""
    ranker = Ranker.open(home=home)
    reported: set[str] = set()
    for context in ("I got fired today.", "My sister is getting married!", "I am afraid of the dark."):
        for place in ranker.rank(context, k=2):
            store.report(context, place.candidate.text, candidate_id=place.candidate.id, pool="ed")
            reported.add(place.candidate.id)
    for context, better in BETTER.items():
        given = ranker.respond(context)
        assert given.candidate is not None
        store.edit(context, given.text, better, candidate_id=given.candidate.id, pool=given.candidate.pool)
    assert store.blocked_ids() == reported

    done = apply_feedback(store, home)
    assert done.entries == 9
    assert done.added == {"ed": 3}
    assert done.removed["ed"] == len(reported)
    assert done.left_out == []

    after = Ranker.open(home=home, safety=None)  # everything is counted, unfit replies too
    everything = {place.candidate.id for place in after.rank("I got fired today.", k=5000, keep_echoes=True)}
    assert not everything & reported
    for context, better in BETTER.items():
        assert better in [place.candidate.text for place in after.rank(context, k=3)]
    assert len(everything) == after.bundles[0].count == ranker.bundles[0].count - len(reported) + 3

    version = Bundle.open(home.indexes / "ed").folder
    assert apply_feedback(store, home).entries == 0
    assert Bundle.open(home.indexes / "ed").folder == version
    assert {entry.state for entry in store.entries()} == {"applied"}


def test_embedded_indexes_are_left_alone(home: Home, store: FeedbackStore) -> None:
    before = sorted(file for file in EMBEDDED.rglob("*") if file.is_file())
    best = Ranker.open(home=home).rank("Hello!", k=1)[0].candidate
    store.report("Hello!", best.text, candidate_id=best.id, pool=best.pool)
    apply_feedback(store, home)
    assert index_names(home) == ["ed"]
    assert Bundle.open(EMBEDDED / "indexes" / "ed").rows_of([best.id])
    assert not Bundle.open(home.indexes / "ed").rows_of([best.id])
    assert sorted(file for file in EMBEDDED.rglob("*") if file.is_file()) == before


def test_a_run_cut_short_is_mended_by_the_next(
    home: Home, store: FeedbackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(context, better), *_] = BETTER.items()
    store.edit(context, "Okay.", better, pool="ed")
    with monkeypatch.context() as broken:
        broken.setattr(FeedbackStore, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            apply_feedback(store, home)
    count = Bundle.open(home.indexes / "ed").count
    done = apply_feedback(store, home)
    assert (done.entries, done.added) == (1, {})
    assert Bundle.open(home.indexes / "ed").count == count


def test_a_rebuilt_index_is_put_right_again(home: Home, store: FeedbackStore) -> None:
    from ranker.cli.feedback import _own_copy

    [(context, better), *_] = BETTER.items()
    best = Ranker.open(home=home).rank(context, k=1)[0].candidate
    store.report(context, best.text, candidate_id=best.id, pool="ed")
    store.edit(context, best.text, better, pool="ed")
    apply_feedback(store, home)
    (home.indexes / "ed" / "CURRENT").unlink()
    _own_copy("ed", home)
    assert Bundle.open(home.indexes / "ed").rows_of([best.id])
    done = apply_feedback(store, home, again=True)
    assert (done.removed, done.added) == ({"ed": 1}, {"ed": 1})


def test_edits_that_cannot_be_used(home: Home, store: FeedbackStore) -> None:
    """A pool without an index waits; a name that is a path is no index; a reported text is never added."""
    store.edit("a", "b", "A fine reply to this.", pool="elsewhere")
    store.edit("a", "b", "A fine reply to that.", pool="../ed")
    store.edit("a", "b", "Go away, nobody likes you.", pool="ed")
    store.report("a", "Go away, nobody likes you.", pool="ed")
    store.edit("a", "b", "word " * 200, pool="dailydialog")
    done = apply_feedback(store, home)
    assert (done.added, done.removed) == ({}, {})
    assert [line.partition(".")[0] for line in done.left_out[:2]] == [
        "no index called 'elsewhere'",
        "no index called '",
    ]
    assert "nothing new to add to 'dailydialog'" in done.left_out[2]
    assert [entry.state for entry in store.entries()] == ["pending"] * 2 + ["applied"] * 3


def test_edits_of_generated_replies_go_to_the_chosen_index(home: Home, store: FeedbackStore) -> None:
    [(context, better), *_] = BETTER.items()
    store.edit(context, "Something generated.", better)
    assert apply_feedback(store, home, default_index="dailydialog").added == {"dailydialog": 1}


def test_exported_pairs_are_read_by_the_corpus_readers(store: FeedbackStore, tmp_path: Path) -> None:
    store.edit(["My cat died.", "Oh no.", "Last night."], "Cool.", 'I\'m so sorry. "Tom" was a fine cat.')
    store.edit("I moved.", "Okay.", "How's the new place?")
    file = tmp_path / "feedback.jsonl"
    assert run("export", "--out", str(file)).exit_code == 0
    for reader in ("generic", "reddit"):
        report = ReadReport()
        found = list(pairs(read_dialogues(reader, file, "train", report)))
        assert [(pair.context.turns, pair.response) for pair in found] == [
            (("My cat died.", "Oh no.", "Last night."), 'I\'m so sorry. "Tom" was a fine cat.'),
            (("I moved.",), "How's the new place?"),
        ]
        assert report.bad == 0
    assert run("export").stdout == file.read_text("utf-8")


def test_list_dismiss_and_apply_as_people_type_them(home: Home, store: FeedbackStore) -> None:
    report = store.report("I moved.", "[red]Good riddance.[/]", reason="unkind")
    edit = store.edit("I moved.", "Okay.", "How's the new place?", pool="ed")
    rows = [json.loads(line) for line in run("list").stdout.splitlines()]
    assert [(row["id"], row["kind"], row["state"]) for row in rows] == [
        (report.id, "report", "pending"),
        (edit.id, "edit", "pending"),
    ]
    assert rows[1]["edited_text"] == "How's the new place?"
    assert [json.loads(line)["id"] for line in run("list", "--kind", "edit").stdout.splitlines()] == [edit.id]
    assert run("list", "--since", "2999-01-01").stdout == ""
    assert "Good" in run("list", "--no-json").stdout
    assert isinstance(run("list", "--kind", "edits").exception, NotFoundError)

    assert run("dismiss", str(report.id)).exit_code == 0
    done = json.loads(run("apply").stdout)
    assert done == {"entries": 1, "removed": {}, "added": {"ed": 1}, "left_out": []}
    assert [entry.state for entry in store.entries()] == ["dismissed", "applied"]
