"""What people say about replies: reports (unethical) and edits (what it should have said), kept in SQLite.

The store is one file in WAL mode. Every entry is committed with `synchronous=FULL`: entries are rare and
people write them once, so each is on disk before the caller hears of it, and outlives a power cut as well as
kill -9.

It holds a limited number of entries. Where one more comes, those that have done their work make room: the
oldest dismissed ones, then the oldest edits that were applied. What is pending stays, and so does every
report that counts: it goes on keeping its reply back, from an index that is built anew too.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ranker.errors import FullError, InputError, IntegrityError, NotFoundError, StorageError
from ranker.storage import storage_errors
from ranker.types import Context, clean_text

FEEDBACK_FILE = "feedback.sqlite3"
"""Name of the store in a home."""

Kind = Literal["report", "edit"]
KINDS: tuple[Kind, ...] = get_args(Kind)
State = Literal["pending", "applied", "dismissed"]
"""Pending until an operator applies it (to the indexes) or dismisses it (it then counts no more)."""
STATES: tuple[State, ...] = get_args(State)

MAX_ENTRIES = 100_000
"""Of a store that is not told otherwise. An entry usually takes about a kilobyte."""

_BUSY_SECONDS = 10.0
_COLUMNS = "id, time, kind, context, candidate_id, text, pool, edited_text, reason, state"
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE entries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            time TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('report', 'edit')),
            context TEXT NOT NULL,
            candidate_id TEXT,
            text TEXT NOT NULL,
            pool TEXT NOT NULL,
            edited_text TEXT NOT NULL,
            reason TEXT NOT NULL,
            state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'applied', 'dismissed'))
        )""",
        "CREATE INDEX entries_by_kind ON entries (kind, state)",
    ),
)
"""The statements that lead from one `user_version` to the next. Released ones never change: new ones come
after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What all feedback has in common. `candidate_id` is None and `pool` empty for a generated reply."""

    kind: ClassVar[Kind]

    id: int
    time: datetime
    """In UTC."""
    context: Context
    candidate_id: str | None
    text: str
    """The reply that was given."""
    pool: str
    reason: str = ""
    state: State = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Entry):
    """A reply that must not be given again."""

    kind: ClassVar[Kind] = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(Entry):
    """A reply, and what should have been said instead."""

    kind: ClassVar[Kind] = "edit"

    edited_text: str


class FeedbackStore:
    """Reports and edits in one SQLite file, safe from several threads and processes. Close it when done."""

    def __init__(self, path: Path, connection: sqlite3.Connection, max_entries: int) -> None:
        """Over a migrated `connection`: use `FeedbackStore.open`."""
        self.path = path
        self.max_entries = max_entries
        self._connection = connection
        self._lock = threading.RLock()
        self._blocked: frozenset[str] = frozenset()
        self._blocked_at: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path, *, max_entries: int = MAX_ENTRIES) -> FeedbackStore:
        """The store at `path`, made where there is none and migrated where it is older.

        `max_entries` is how many it may hold when an entry is written. Raises StorageError where the disk
        refuses, and IntegrityError where the file is something else or was made by a newer version of the
        package.
        """
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Conversations are private; SQLite gives its side files the mode of this one.
            path.touch(mode=0o600)
        with _database_errors(path):
            # Autocommit, so that transactions begin where this module says; the lock serialises threads.
            connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                _migrate(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, max_entries)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> FeedbackStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(
        self,
        context: str | Iterable[str] | Context,
        text: str,
        *,
        candidate_id: str | None = None,
        pool: str = "",
        reason: str = "",
    ) -> Report:
        """Keep that the reply `text` to this context was reported.

        Raises InputError for an empty text, FullError where the store has no room.
        """
        fields = _fields(context, text, candidate_id, pool, reason)
        id, time = self._insert("report", fields, edited_text="")
        return Report(id=id, time=time, **fields)

    def edit(
        self,
        context: str | Iterable[str] | Context,
        text: str,
        edited_text: str,
        *,
        candidate_id: str | None = None,
        pool: str = "",
        reason: str = "",
    ) -> Edit:
        """Keep that `edited_text` should have been said instead of `text`.

        Raises InputError where one is empty or the two are the same, FullError where the store has no room.
        """
        fields = _fields(context, text, candidate_id, pool, reason)
        edited = _text(edited_text, "edited text")
        if edited == fields["text"]:
            raise InputError("the edited text is the reply as it was")
        id, time = self._insert("edit", fields, edited_text=edited)
        return Edit(id=id, time=time, edited_text=edited, **fields)

    def entries(
        self, *, since: datetime | None = None, kind: Kind | None = None, state: State | None = None
    ) -> list[Report | Edit]:
        """Entries in the order they came, of this kind and state, at or after `since`."""
        sql, values = f"SELECT {_COLUMNS} FROM entries WHERE 1", []
        for condition, value in (
            ("time >= ?", since and _time_text(since)),
            ("kind = ?", kind),
            ("state = ?", state),
        ):
            if value is not None:
                sql += f" AND {condition}"
                values.append(value)
        with self._lock, _database_errors(self.path):
            rows = self._connection.execute(f"{sql} ORDER BY id", values).fetchall()
        return [_entry(row, self.path) for row in rows]

    def blocked_ids(self) -> frozenset[str]:
        """Ids of the candidates that were reported, unless the report was dismissed.

        Cheap enough for every request: read again only after some process changed the store.
        """
        with self._lock, _database_errors(self.path):
            [(version,)] = self._connection.execute("PRAGMA data_version").fetchall()
            # The first number tells the commits of others, the second our own.
            at = (int(version), self._connection.total_changes)
            if at != self._blocked_at:
                rows = self._connection.execute(
                    "SELECT DISTINCT candidate_id FROM entries"
                    " WHERE kind = 'report' AND state != 'dismissed' AND candidate_id IS NOT NULL"
                )
                self._blocked, self._blocked_at = frozenset(id for (id,) in rows), at
            return self._blocked

    def settle(self, ids: Collection[int], state: Literal["applied", "dismissed"]) -> None:
        """Mark entries as applied or dismissed, all or none. Raises NotFoundError for an unknown id."""
        with self._lock, self._writing() as connection:
            for id in ids:
                changed = connection.execute("UPDATE entries SET state = ? WHERE id = ?", (state, id))
                if changed.rowcount == 0:
                    raise NotFoundError(f"no feedback entry has the id {id}", fix="See: ranker feedback list")

    def _insert(self, kind: Kind, fields: dict[str, Any], *, edited_text: str) -> tuple[int, datetime]:
        time = datetime.now(timezone.utc)
        context = json.dumps(fields["context"].turns, ensure_ascii=False)
        values = (
            _time_text(time),
            kind,
            context,
            fields["candidate_id"],
            fields["text"],
            fields["pool"],
            edited_text,
            fields["reason"],
        )
        with self._lock, self._writing() as connection:
            self._make_room(connection)
            done = connection.execute(
                "INSERT INTO entries (time, kind, context, candidate_id, text, pool, edited_text, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        return int(done.lastrowid or 0), time

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Remove what may go until one more entry fits; raises FullError where it still does not."""
        [(count,)] = connection.execute("SELECT COUNT(*) FROM entries")
        excess = count + 1 - self.max_entries
        if excess <= 0:
            return
        gone = connection.execute(
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries"
            " WHERE state = 'dismissed' OR (state = 'applied' AND kind = 'edit')"
            " ORDER BY state != 'dismissed', id LIMIT ?)",
            (excess,),
        )
        if gone.rowcount < excess:
            raise FullError(
                f"the feedback store {self.path} is full: {count:,} entries, none of which may go",
                fix="Look at them: ranker feedback list, then apply or dismiss them",
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _database_errors(self.path), _transaction(self._connection):
            yield self._connection


def training_pairs(entries: Iterable[Report | Edit]) -> list[tuple[Context, str]]:
    """The contexts of the edits with what should have been said, for the next training run; each pair once.

    Dismissed edits are left out, and texts that were reported themselves.
    """
    given = list(entries)
    banned = reported_texts(given)
    found = {
        (entry.context, entry.edited_text): None
        for entry in given
        if isinstance(entry, Edit) and entry.state != "dismissed" and entry.edited_text not in banned
    }
    return list(found)


def reported_texts(entries: Iterable[Report | Edit]) -> set[str]:
    """Texts of the replies that were reported, unless the report was dismissed."""
    return {entry.text for entry in entries if isinstance(entry, Report) and entry.state != "dismissed"}


def _fields(
    context: str | Iterable[str] | Context, text: str, candidate_id: str | None, pool: str, reason: str
) -> dict[str, Any]:
    return {
        "context": Context.of(context),
        "candidate_id": clean_text(candidate_id or "") or None,
        "text": _text(text, "reply"),
        "pool": clean_text(pool),
        "reason": clean_text(reason),
    }


def _text(text: str, name: str) -> str:
    if not (cleaned := clean_text(text)):
        raise InputError(f"the {name} is empty")
    return cleaned


def _time_text(time: datetime) -> str:
    """Sorts as the times do: always UTC, always six decimals."""
    return time.astimezone(timezone.utc).isoformat(timespec="microseconds")


def _entry(row: tuple[Any, ...], path: Path) -> Report | Edit:
    id, time, kind, context, candidate_id, text, pool, edited_text, reason, state = row
    try:
        fields: dict[str, Any] = {
            "id": id,
            "time": datetime.fromisoformat(time),
            "context": Context.of(json.loads(context)),
            "candidate_id": candidate_id,
            "text": text,
            "pool": pool,
            "reason": reason,
            "state": state,
        }
        return Report(**fields) if kind == "report" else Edit(edited_text=edited_text, **fields)
    except (ValueError, TypeError, InputError) as error:
        raise IntegrityError(f"entry {id} of {path} cannot be read ({error})") from error


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection) == len(_MIGRATIONS):
        return
    with _transaction(connection):
        version = _version(connection)  # another process may have migrated while this one waited
        if version > len(_MIGRATIONS):
            raise IntegrityError(
                f"{path} was made by a newer version of ranker (layout {version})",
                fix="Upgrade: pip install -U response-ranker",
            )
        for statements in _MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as cursor:
        return int(cursor.fetchone()[0])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. It takes the write lock at once, so it never fails half way for want of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's complaints about `path` into errors of the package."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # such as a store that was closed: a mistake of the caller's, not of the disk
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"cannot use the feedback store {path} ({error})",
            fix="Check the disk's free space and the file's permissions",
        ) from error
    except sqlite3.DatabaseError as error:
        raise IntegrityError(
            f"{path} is not a feedback store ({error})", fix="Move it away: a new one is made"
        ) from error
