"""The feedback store: what goes in comes out, whoever writes and whatever is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import ranker.feedback
from ranker.errors import FullError, InputError, IntegrityError, NotFoundError, StorageError
from ranker.feedback import Edit, FeedbackStore, Report, reported_texts, training_pairs
from ranker.types import Context


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "feedback.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[FeedbackStore]:
    with FeedbackStore.open(path) as opened:
        yield opened


def test_entries_come_back_as_they_went_in(store: FeedbackStore) -> None:
    report = store.report(
        ["I lost  my job.", "", "Today."], "Ha ha!", candidate_id="ed:1", pool="ed", reason="rude"
    )
    edit = store.edit("I moved.", "Okay.", "How is the\nnew place?", candidate_id="ed:2", pool="ed")
    assert store.entries() == [report, edit]
    assert report == Report(
        id=1,
        time=report.time,
        context=Context(("I lost my job.", "Today.")),
        candidate_id="ed:1",
        text="Ha ha!",
        pool="ed",
        reason="rude",
        state="pending",
    )
    assert isinstance(edit, Edit)
    assert edit.edited_text == "How is the new place?"
    assert (report.kind, edit.kind) == ("report", "edit")
    assert timedelta() <= datetime.now(timezone.utc) - report.time < timedelta(minutes=1)


def test_entries_by_kind_state_and_time(store: FeedbackStore) -> None:
    first = store.report("a", "b", candidate_id="x")
    second = store.edit("a", "b", "c")
    third = store.report("a", "d", candidate_id="y")
    store.settle([first.id], "applied")
    assert [entry.id for entry in store.entries(kind="report")] == [first.id, third.id]
    assert [entry.id for entry in store.entries(state="pending")] == [second.id, third.id]
    assert [entry.id for entry in store.entries(since=second.time)] == [second.id, third.id]
    elsewhere = third.time.astimezone(timezone(timedelta(hours=5)))
    assert [entry.id for entry in store.entries(since=elsewhere)] == [third.id]


@pytest.mark.parametrize(
    ("context", "text", "edited"),
    [([], "reply", "better"), (["hi"], " \n", "better"), (["hi"], "reply", ""), (["hi"], "same", " same ")],
)
def test_empty_and_pointless_feedback_is_refused(
    store: FeedbackStore, context: list[str], text: str, edited: str
) -> None:
    with pytest.raises(InputError):
        store.edit(context, text, edited)
    assert store.entries() == []


def test_strange_texts_are_kept(store: FeedbackStore) -> None:
    given = store.edit(
        ["'; DROP TABLE entries; --"], "caf\udce9", "<b>🎉</b>\x00", candidate_id="\ud800", pool="p'"
    )
    assert store.entries() == [given]


def test_blocked_ids_follow_every_writer(store: FeedbackStore, path: Path) -> None:
    assert store.blocked_ids() == frozenset()
    own = store.report("a", "b", candidate_id="x")
    store.report("a", "generated: it has no id")
    assert store.blocked_ids() == {"x"}
    assert store.blocked_ids() is store.blocked_ids()
    with FeedbackStore.open(path) as other:
        other.report("a", "b", candidate_id="y")
        assert store.blocked_ids() == {"x", "y"}
        store.settle([own.id], "dismissed")
        assert other.blocked_ids() == store.blocked_ids() == {"y"}


def test_settling_is_all_or_nothing(store: FeedbackStore) -> None:
    entry = store.report("a", "b")
    with pytest.raises(NotFoundError, match="no feedback entry has the id 99"):
        store.settle([entry.id, 99], "applied")
    assert store.entries()[0].state == "pending"


def test_threads_and_connections_write_at_once(store: FeedbackStore, path: Path) -> None:
    def write(writer: int) -> None:
        if writer % 2:
            for n in range(10):
                store.report("a", f"{writer}-{n}", candidate_id=f"{writer}-{n}")
        else:
            with FeedbackStore.open(path) as own:
                for n in range(10):
                    own.report("a", f"{writer}-{n}", candidate_id=f"{writer}-{n}")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert store.blocked_ids() == {f"{writer}-{n}" for writer in range(6) for n in range(10)}


WRITER = """
import sys
from pathlib import Path
from ranker.feedback import FeedbackStore
store = FeedbackStore.open(Path(sys.argv[1]))
n = 0
while True:
    store.report("a", f"reply {n}", candidate_id=f"{sys.argv[2]}-{n}")
    print(n, flush=True)
    n += 1
"""


def test_kill_9_loses_nothing_that_was_confirmed(path: Path) -> None:
    """Two processes create the store and write to it at once; both are killed amid a write."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    confirmed: set[str] = set()
    try:
        for writer, name in zip(writers, ("one", "two"), strict=True):
            assert writer.stdout is not None
            for _ in range(10):
                confirmed.add(f"{name}-{int(writer.stdout.readline())}")
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        for writer in writers:
            writer.communicate(timeout=10)
    with FeedbackStore.open(path) as store:
        assert len(confirmed) == 20
        assert confirmed <= store.blocked_ids()
        for entry in store.entries():
            assert entry.text == f"reply {str(entry.candidate_id).partition('-')[2]}"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_it_is_durable_and_private(store: FeedbackStore, path: Path) -> None:
    settings = [
        store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    ]
    assert settings == ["wal", 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_older_store_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FeedbackStore.open(path) as store:
        before = store.report("a", "b", candidate_id="x")
    longer = (
        *ranker.feedback._MIGRATIONS,
        ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('new')"),
    )
    monkeypatch.setattr(ranker.feedback, "_MIGRATIONS", longer)
    for _ in range(2):
        with FeedbackStore.open(path) as store:
            assert store.entries() == [before]
            assert store._connection.execute("SELECT text FROM notes").fetchall() == [("new",)]


def test_a_newer_store_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FeedbackStore.open(path).close()
    monkeypatch.setattr(ranker.feedback, "_MIGRATIONS", ())
    with pytest.raises(IntegrityError, match="newer version of ranker"):
        FeedbackStore.open(path)


def test_a_foreign_file_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(IntegrityError, match="is not a feedback store"):
        FeedbackStore.open(path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError):
        FeedbackStore.open(tmp_path / "file" / "feedback.sqlite3")


def test_training_pairs_are_the_edits_worth_learning(store: FeedbackStore) -> None:
    store.edit(["My cat died.", "Oh.", "Last night."], "Cool.", "I'm so sorry.")
    store.edit(["My cat died.", "Oh.", "Last night."], "Nice!", "I'm so sorry.")
    store.edit("I failed.", "Okay.", "Serves you right.")
    store.report("I failed.", "Serves you right.")
    dropped = store.edit("I failed.", "Okay.", "buy my pills")
    store.settle([dropped.id], "dismissed")
    assert reported_texts(store.entries()) == {"Serves you right."}
    assert training_pairs(store.entries()) == [
        (Context(("My cat died.", "Oh.", "Last night.")), "I'm so sorry.")
    ]


def test_settled_entries_make_room(path: Path) -> None:
    """The dismissed go first, then applied edits, each the oldest first; reports that count never go."""
    with FeedbackStore.open(path, max_entries=6) as store:
        applied_report = store.report("a", "b", candidate_id="x")
        applied_edits = [store.edit("a", "b", text) for text in ("c", "d")]
        dismissed = [store.report("a", text, candidate_id="y") for text in ("e", "f")]
        pending = store.report("a", "g", candidate_id="z")
        store.settle([applied_report.id, *(edit.id for edit in applied_edits)], "applied")
        store.settle([report.id for report in dismissed], "dismissed")

        for gone in (*dismissed, *applied_edits):
            before = {entry.id for entry in store.entries()}
            new = store.edit("a", "b", f"instead of {gone.id}")
            assert {entry.id for entry in store.entries()} == before - {gone.id} | {new.id}
        with pytest.raises(FullError, match=r"is full: 6 entries.*ranker feedback list"):
            store.edit("a", "b", "one more")
        assert store.blocked_ids() == {"x", "z"}
        assert {applied_report.id, pending.id} <= {entry.id for entry in store.entries()}

        store.settle([pending.id], "dismissed")
        store.report("a", "b", candidate_id="w")
        assert store.blocked_ids() == {"x", "w"}


def test_a_lower_limit_removes_no_more_than_it_may(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        entries = [store.edit("a", "b", str(number)) for number in range(5)]
        store.settle([entry.id for entry in entries[:3]], "applied")
    with FeedbackStore.open(path, max_entries=2) as lower:
        with pytest.raises(FullError):
            lower.report("a", "b")
        assert len(lower.entries()) == 5, "a refusal changes nothing"
    with FeedbackStore.open(path, max_entries=3) as low:
        low.report("a", "b")
        assert [entry.id for entry in low.entries()] == [4, 5, 6]
