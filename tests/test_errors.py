"""Messages are one line: what, where, and what to do."""

from __future__ import annotations

import copy
import inspect

import pytest

from ranker import errors
from ranker.errors import InputError, MissingExtraError, NotFoundError, RankerError, nearest


def test_one_line_with_the_next_step() -> None:
    error = InputError("broken\n  text", fix="Run:\n this")
    assert str(error) == "broken text. Run: this"
    assert (error.message, error.fix) == ("broken text", "Run: this")
    assert str(InputError("broken")) == "broken"
    assert str(InputError("broken", fix=" \n")) == "broken"


def test_copies_say_the_same() -> None:
    error = copy.copy(InputError("broken", fix="Mend it"))
    assert (str(error), error.message, error.fix) == ("broken. Mend it", "broken", "Mend it")


def test_every_error_has_one_root_and_is_in_the_drawing() -> None:
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if value.__module__ == errors.__name__ and value is not RankerError
    ]
    assert len(classes) >= 10
    for found in classes:
        assert issubclass(found, RankerError)
        assert found.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dailydialogue", "dailydialog"), ("ED", "ed"), ("Redit", "reddit"), ("qqq", None), ("", None)],
)
def test_the_nearest_name(name: str, expected: str | None) -> None:
    assert nearest(name, ["ed", "dailydialog", "reddit"]) == expected


def test_what_is_not_found_names_what_is() -> None:
    assert str(NotFoundError.of("pool", "redit", ["ed", "reddit"])) == (
        "no pool called 'redit'. Did you mean 'reddit'?"
    )
    assert str(NotFoundError.of("pool", "qqq", ["reddit", "ed"], fix="See: ranker pools")) == (
        "no pool called 'qqq'. Known: ed, reddit. See: ranker pools"
    )
    assert "Known: none." in str(NotFoundError.of("pool", "ed", []))


def test_a_missing_extra_names_the_command() -> None:
    assert str(MissingExtraError.of("training", "train")) == (
        "training needs the extra 'train'. Run: pip install \"response-ranker[train]\""
    )
