"""The README's commands exist, and nothing in it is left to fill in."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from ranker.cli import app

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")


def test_every_command_that_it_names_exists() -> None:
    known = set(get_command(app).commands)  # type: ignore[attr-defined] # the app is a group
    named = set(re.findall(r"\branker ([a-z][a-z-]+)", "\n".join(re.findall(r"`+[^`]*`+", README))))
    assert named
    assert named - known == set()


def test_it_has_both_commands_and_no_gap() -> None:
    assert 'pip install -c constraints.txt . && ranker query "I finally got promoted at work!"' in README
    assert 'pip install -c constraints.txt -e ".[dev]" && pytest' in README
    assert "PLACEHOLDER" not in README
