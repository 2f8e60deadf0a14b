"""What `ranker` exports, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ranker

PUBLIC = {
    "Boosts",
    "Candidate",
    "Context",
    "Encoder",
    "Filters",
    "Label",
    "Ranked",
    "Ranker",
    "RankerError",
    "Ranking",
    "Response",
    "load_encoder",
}
HEAVY = ("torch", "transformers", "sentence_transformers", "datasets", "matplotlib", "onnx", "pandas")


def test_exported_names() -> None:
    assert set(ranker.__all__) == PUBLIC
    assert all(hasattr(ranker, name) for name in PUBLIC)


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], ["query", "I finally got promoted at work!", "--json"], ["train", "--help"], ["doctor"]],
    ids=lambda arguments: " ".join(arguments[:1]) or "import",
)
def test_no_heavy_import(arguments: list[str]) -> None:
    """Neither the import, nor the help, nor an answer may load the training libraries."""
    run = "import ranker"
    if arguments:
        run += (
            f"\nimport sys, contextlib\nfrom ranker.cli import main\nsys.argv = ['ranker', *{arguments!r}]"
            "\nwith contextlib.suppress(SystemExit): main()"
        )
    loaded = f"\nimport sys; print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", run + loaded], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "LOADED []", done.stderr
