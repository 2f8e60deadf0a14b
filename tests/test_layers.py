"""Imports point down only, and siblings do not import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import ranker

PACKAGE = Path(ranker.__file__).parent

LAYERS = (
    {"types", "errors"},
    {"config", "home", "storage", "tokenizing"},
    {"safety"},  # below the pools, which leave profane candidates out
    {"index", "labels", "pools", "corpora", "knowledge"},
    {"encoders", "rerank", "generation"},
    {"training", "evaluation", "bundle", "feedback"},
    {"engine"},
    {"server"},
    {"cli"},  # starts everything, the server too
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FOUNDATION = {("types", "errors"), ("storage", "config"), ("storage", "home")}
"""The only sideways imports: within the two lowest layers, where one word needs another."""


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(file: Path) -> set[str]:
    """The parts of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names = [node.module or ""]
            if node.module == "ranker":
                names = [f"ranker.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("ranker.")}
    return found


def violations(file: Path) -> list[str]:
    part = part_of(file)
    if part in ("__init__", "__main__"):
        return []
    wrong = []
    for other in imports_of(file) - {part}:
        if LEVEL[other] < LEVEL[part] or (part, other) in FOUNDATION:
            continue
        wrong.append(f"{file.relative_to(PACKAGE)} ({part}) imports {other}")
    return wrong


def test_imports_point_down() -> None:
    assert [wrong for file in PACKAGE.rglob("*.py") for wrong in violations(file)] == []


def test_every_part_has_a_layer() -> None:
    parts = {part_of(file) for file in PACKAGE.rglob("*.py")}
    assert parts - set(LEVEL) == {"__init__", "__main__"}


def test_an_upward_import_is_found() -> None:
    upward = PACKAGE / "cli" / "output.py"
    assert "types" in imports_of(upward)
    assert LEVEL["types"] < LEVEL["cli"]
    assert LEVEL["encoders"] > LEVEL["index"]


def test_files_stay_readable() -> None:
    long = {
        str(file.relative_to(PACKAGE)): lines
        for file in PACKAGE.rglob("*.py")
        if (lines := len(file.read_text("utf-8").splitlines())) > 420
    }
    assert long == {}
