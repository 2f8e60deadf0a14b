"""The threshold by hand-made numbers, and the command that measures it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from fallbacks import Talker
from typer.testing import CliRunner

from ranker.bundle import PoolNote, write_bundle
from ranker.cli.evaluate_fallback import evaluate_fallback
from ranker.encoders import HashingEncoder
from ranker.engine import Ranker
from ranker.engine.fallback import read_threshold
from ranker.errors import InputError
from ranker.evaluation.fallback import Judged, best_threshold, choose, curve, likeness, plot, sentence_bleu
from ranker.home import Home
from ranker.types import Calibration, Candidate


def judged(rows: list[tuple[float, float, float]]) -> Judged:
    """Rows of (confidence, quality retrieved, quality generated)."""
    return Judged(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0.1, 0.2, 0.5), (0.3, 0.2, 0.5), (0.5, 0.6, 0.5), (0.9, 0.8, 0.5)], 0.4),
        ([(0.9, 0.8, 0.5), (0.3, 0.2, 0.5), (0.5, 0.6, 0.5), (0.1, 0.2, 0.5)], 0.4),  # whatever the order
        ([(0.1, 0.6, 0.5), (0.9, 0.8, 0.5)], 0.0),
        ([(0.1, 0.4, 0.5), (0.9, 0.4, 0.5)], 1.0),
        ([(0.1, 0.5, 0.5), (0.9, 0.5, 0.5)], 0.0),  # no better: never ask
        # One lucky retrieved reply at 0.2 does not stop it: +0.3 - 0.1 + 0.3 is more than +0.3.
        ([(0.1, 0.2, 0.5), (0.2, 0.6, 0.5), (0.3, 0.2, 0.5), (0.9, 0.9, 0.5)], 0.6),
        # Rows of one confidence cannot be told apart: +0.3 - 0.4 together is a loss.
        ([(0.2, 0.2, 0.5), (0.2, 0.9, 0.5), (0.8, 0.9, 0.5)], 0.0),
    ],
)
def test_the_best_threshold_by_hand(rows: list[tuple[float, float, float]], expected: float) -> None:
    assert best_threshold(judged(rows)) == pytest.approx(expected)


def test_it_is_the_best_of_all_thresholds() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        rows = Judged(random.integers(0, 10, 40) / 10, random.random(40), random.random(40))
        found = rows.given(best_threshold(rows)).mean()
        assert found == pytest.approx(max(rows.given(step).mean() for step in np.linspace(0, 1, 101)))


def test_what_is_given() -> None:
    rows = judged([(0.1, 0.2, 0.5), (0.3, 0.2, 0.7), (0.5, 0.6, 0.5)])
    assert rows.given(0.3).tolist() == [0.5, 0.2, 0.6]
    assert rows.given(0.0).tolist() == [0.2, 0.2, 0.6]


def test_chosen_on_one_half_and_checked_on_the_other() -> None:
    confidence = np.linspace(0, 1, 400)
    rows = Judged(confidence, confidence, np.full(400, 0.3))
    found = choose(rows)
    assert found.threshold == pytest.approx(0.3, abs=0.02)
    assert found.rows == 200
    assert found.generated == pytest.approx(0.3)
    assert found.given > max(found.retrieved, found.generated)
    assert found.gain == pytest.approx(found.given - found.retrieved)
    assert found.gain_low < found.gain < found.gain_high
    assert found.asked == pytest.approx(0.3, abs=0.05)
    assert choose(rows) == found
    with pytest.raises(InputError, match="at least 20 rows, not 19"):
        choose(rows.rows(np.arange(19)))


def test_curves_are_means_of_equal_bins() -> None:
    points = curve(judged([(0.9, 0.8, 0.4), (0.1, 0.2, 0.5), (0.3, 0.4, 0.7), (0.7, 0.6, 0.2)]), bins=2)
    assert [point.rows for point in points] == [2, 2]
    assert [point.confidence for point in points] == pytest.approx([0.2, 0.8])
    assert [point.retrieved for point in points] == pytest.approx([0.3, 0.7])
    assert [point.generated for point in points] == pytest.approx([0.6, 0.3])
    assert points[0].retrieved_error == pytest.approx(0.1)  # of 0.2 and 0.4: deviation 0.1414 / sqrt 2


def test_qualities() -> None:
    encoder = HashingEncoder()
    found = likeness(encoder, ["so sorry", "so sorry"], ["so sorry", "a parcel"])
    assert found[0] == pytest.approx(1.0, abs=1e-6)
    assert found[1] < 0.5
    bleu = sentence_bleu(["I am so very sorry", "zebra"], ["i am so very sorry", "I am here"])
    assert bleu[0] == pytest.approx(1.0)
    assert bleu[1] < 0.3


def test_a_plot(tmp_path: Path) -> None:
    rows = Judged(*np.random.default_rng(0).random((3, 50)))
    plot({"cosine": rows, "AVG BLEU": rows}, 0.3, tmp_path / "curves.png", "made up")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


class Calibrated(HashingEncoder):
    @property
    def calibration(self) -> Calibration | None:
        return Calibration(8.0, -4.0)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command with a small home, a calibrated encoder, and a talker for a generator."""
    home, encoder = Home(tmp_path / "home"), HashingEncoder()
    monkeypatch.setenv("RANKER_HOME", str(home.root))
    texts = ["I am sorry about your dog.", "What a party!", "How was the exam?"]
    write_bundle(
        home.indexes / "ed",
        name="ed",
        candidates=[Candidate(f"ed:{row}", text, "ed") for row, text in enumerate(texts)],
        vectors=encoder.encode_candidates(texts),
        encoder_name="hashing",
        encoder_fingerprint=encoder.fingerprint,
        pools=[PoolNote("ed", "ed", "CC0-1.0", True, is_sample=False)],
    )
    open_ranker = Ranker.open

    def opened(*indexes: str, home: Home, encoder: str | None, generator: None) -> Ranker:
        return open_ranker(*indexes, home=home, encoder=Calibrated(), generator=generator, safety=None)

    monkeypatch.setattr(Ranker, "open", opened)
    monkeypatch.setattr("ranker.generation.load_generator", lambda name, home: Talker("So true: an odd day."))
    app = typer.Typer()
    app.command()(evaluate_fallback)
    return app


def test_the_command_writes_what_auto_stands_on(cli: typer.Typer, tmp_path: Path) -> None:
    """Where the pool knows the topic, its reply is the true one; elsewhere the generated one is."""
    pairs = []
    for number in range(40):
        known = {"context": [f"my dog is ill, number {number}"], "response": "I am sorry about your dog."}
        odd = {"context": [f"xylophone {number} quartz"], "response": "So true: an odd day."}
        pairs += [known, odd]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    arguments = ["--data", f"generic={data}", "--generator", "talker", "--rows", "80", "--json"]
    arguments += ["--replies", str(tmp_path / "kept.jsonl"), "--plot", str(tmp_path / "curves.png")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    choice = found["choices"]["cosine"]
    assert choice["given"] > 0.95 > 0.1 + max(choice["retrieved"], choice["generated"])
    assert choice["gain_low"] > 0.1
    assert (tmp_path / "curves.png").is_file()
    kept = read_threshold("talker", HashingEncoder().fingerprint, Home(tmp_path / "home"))
    assert kept is not None
    assert kept.threshold == found["threshold"]
    assert "80 contexts, ranked from ed (3 candidates)" in kept.measured
    lines = (tmp_path / "kept.jsonl").read_text().splitlines()
    again = CliRunner().invoke(cli, [*arguments, "--no-write"])
    assert json.loads(again.stdout) == found
    assert (tmp_path / "kept.jsonl").read_text().splitlines() == lines
