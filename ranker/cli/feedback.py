"""`ranker feedback list|export|apply|dismiss`: what people reported and edited, and learning from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from ranker.bundle import Bundle, remove_candidates
from ranker.cli.options import JsonOption, home_of
from ranker.cli.output import note, out, print_json, table, wants_json
from ranker.engine import DEFAULT_INDEX, index_folder, index_names
from ranker.engine.building import add_texts
from ranker.errors import InputError, NotFoundError
from ranker.feedback import (
    FEEDBACK_FILE,
    KINDS,
    STATES,
    Edit,
    FeedbackStore,
    Report,
    reported_texts,
    training_pairs,
)
from ranker.home import EMBEDDED, Home
from ranker.storage import current, exclusive, is_published, publish, staged_folder, write_bytes

T = TypeVar("T", bound=str)

app = typer.Typer(
    no_args_is_help=True, help="What people reported and edited: look at it, learn from it, train on it."
)


@dataclass(slots=True)
class Applied:
    """What applying did, by index: candidates removed and added; and the edits that could not be used."""

    removed: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    left_out: list[str] = field(default_factory=list)


@app.command("list")
def list_entries(
    ctx: typer.Context,
    kind: Annotated[str | None, typer.Option(help=f"Only {' or '.join(KINDS)}s.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only those {', '.join(STATES)}.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only those from this time on, in UTC.")] = None,
    as_json: JsonOption = None,
) -> None:
    """List reports and edits, oldest first."""
    with _open(home_of(ctx)) as store:
        found = store.entries(
            since=since and since.replace(tzinfo=timezone.utc),
            kind=_one_of("kind of feedback", kind, KINDS),
            state=_one_of("state of feedback", state, STATES),
        )
    if wants_json(as_json):
        for entry in found:
            print_json(entry_as_json(entry))
        return
    if not found:
        note("No feedback yet.")
        return
    shown = table("id", "time", "kind", "state", "pool", "they said", "reply", "should have said / why")
    for entry in found:
        wish = entry.edited_text if isinstance(entry, Edit) else entry.reason
        shown.add_row(
            str(entry.id),
            f"{entry.time:%Y-%m-%d %H:%M}",
            f"[red]{entry.kind}[/]" if isinstance(entry, Report) else entry.kind,
            entry.state,
            escape(entry.pool),
            escape(entry.context.last),
            escape(entry.text),
            escape(wish),
        )
    out.print(shown)


@app.command("export")
def export_pairs(
    ctx: typer.Context,
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write.", show_default="stdout")
    ] = None,
) -> None:
    """Write the edits as training pairs: a context and the reply that it should have got on each line.

    Example: ranker feedback export --out feedback.jsonl, then ranker train ... --feedback feedback.jsonl
    """
    with _open(home_of(ctx)) as store:
        found = training_pairs(store.entries())
    rows = [{"context": list(context.turns), "response": response} for context, response in found]
    if to is None:
        for row in rows:
            print_json(row)
    else:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_bytes(to.expanduser(), lines.encode())
    note(f"{len(rows):,} pairs" + (f" written to {to}." if to else "."))


@app.command("apply")
def apply(
    ctx: typer.Context,
    pool: Annotated[
        str, typer.Option("--pool", "-p", help="The index that learns edits of generated replies.")
    ] = DEFAULT_INDEX,
    again: Annotated[
        bool,
        typer.Option("--again", help="Add earlier edits too, as after an index was rebuilt."),
    ] = False,
    as_json: JsonOption = None,
) -> None:
    """Remove reported replies from every index and add edited ones, at once.

    Each index changes in one step: a server answers from the old version until it takes up the new one.
    Running it twice changes nothing more. An index embedded in the package is first copied to your home.
    """
    with _open(home_of(ctx)) as store:
        done = apply_feedback(store, home_of(ctx), default_index=pool, again=again)
    if wants_json(as_json):
        print_json(
            {
                "entries": done.entries,
                "removed": done.removed,
                "added": done.added,
                "left_out": done.left_out,
            }
        )
        return
    for name, count in done.added.items():
        note(f"Added {count:,} to {name!r}.")
    for name, count in done.removed.items():
        note(f"Removed {count:,} from {name!r}.")
    for line in done.left_out:
        note(line)
    note(f"{done.entries:,} entries applied." if done.entries else "Nothing new to apply.")


@app.command("dismiss")
def dismiss(
    ctx: typer.Context,
    ids: Annotated[list[int], typer.Argument(help="As `ranker feedback list` shows.")],
) -> None:
    """Set entries aside: a dismissed report no longer blocks its candidate, a dismissed edit is not learnt.

    What was removed from an index by applying a report before stays removed.
    """
    with _open(home_of(ctx)) as store:
        store.settle(ids, "dismissed")
    note(f"Dismissed {len(ids):,}.")


def apply_feedback(
    store: FeedbackStore, home: Home, *, default_index: str = DEFAULT_INDEX, again: bool = False
) -> Applied:
    """Bring the indexes of `home` up to the feedback, then mark its entries as applied.

    Reports are enforced every time and on every index, by text: an index that was rebuilt may hold a reported
    reply again, under another id. Edits are added once (`again`: those applied before too), to the index of
    their pool, or `default_index` where they have none. Each index changes atomically, and nothing is done
    twice: a run that was cut short is mended by the next.
    """
    entries = [entry for entry in store.entries() if entry.state != "dismissed"]
    banned = reported_texts(entries)
    wishes: dict[str, list[Edit]] = {}
    for entry in entries:
        if isinstance(entry, Edit) and (again or entry.state == "pending"):
            wishes.setdefault(entry.pool or default_index, []).append(entry)
    done = Applied()
    waiting: set[int] = set()
    # Added first: an index may not lose its last candidate.
    for name, edits in wishes.items():
        texts = dict.fromkeys(edit.edited_text for edit in edits if edit.edited_text not in banned)
        try:
            if added := _add(name, list(texts), home):
                done.added[name] = added
        except (NotFoundError, InputError) as error:
            done.left_out.append(str(error))
            # A missing index can be built; what cleaning refuses once, it always will.
            waiting |= {edit.id for edit in edits} if isinstance(error, NotFoundError) else set()
    for name in _known_indexes(home) if banned else ():
        if removed := _remove(name, banned, home):
            done.removed[name] = removed
    settled = [entry.id for entry in entries if entry.state == "pending" and entry.id not in waiting]
    store.settle(settled, "applied")
    done.entries = len(settled)
    return done


def entry_as_json(entry: Report | Edit) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": entry.id,
        "time": entry.time.isoformat(timespec="seconds"),
        "kind": entry.kind,
        "state": entry.state,
        "context": list(entry.context.turns),
        "candidate_id": entry.candidate_id,
        "pool": entry.pool,
        "text": entry.text,
    }
    if isinstance(entry, Edit):
        row["edited_text"] = entry.edited_text
    return {**row, "reason": entry.reason}


def _open(home: Home) -> FeedbackStore:
    return FeedbackStore.open(home.root / FEEDBACK_FILE)


def _add(name: str, texts: Sequence[str], home: Home) -> int:
    """Add those of the texts that the index lacks; returns how many. Raises InputError where cleaning refuses
    all of them, and NotFoundError where there is no such index."""
    if name not in (indexes := _known_indexes(home)):  # a name from outside: not to be taken for a path
        raise NotFoundError.of("index", name, indexes, fix="Its edits wait until it is built")
    bundle = Bundle.open(index_folder(name, home))
    known = {bundle.candidate(row).text for row in bundle.rows_of_texts(texts)}
    new = [text for text in texts if text not in known]
    return add_texts(_own_copy(name, home), new, home)[0] if new else 0


def _remove(name: str, texts: Collection[str], home: Home) -> int:
    """Remove the candidates with these texts from an index; returns how many it had."""
    found = len(Bundle.open(index_folder(name, home)).rows_of_texts(texts))
    if found:
        remove_candidates(_own_copy(name, home), texts=texts)
    return found


def _known_indexes(home: Home) -> list[str]:
    return sorted({*index_names(home), *index_names(Home(EMBEDDED))})


def _own_copy(name: str, home: Home) -> Path:
    """The index in the home, copied there from the package where it is an embedded one."""
    root = home.indexes / name
    if not is_published(root):
        with exclusive(root, "writing"), staged_folder(root) as staged:
            source = current(EMBEDDED / "indexes" / name)
            if source is not None and not is_published(root):
                # Hidden files tell what was verified: of the source, not of the copy.
                shutil.copytree(source, staged, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
                publish(staged, root)
    return root


def _one_of(what: str, value: str | None, known: tuple[T, ...]) -> T | None:
    if value is None:
        return None
    for one in known:
        if value == one:
            return one
    raise NotFoundError.of(what, value, known)
