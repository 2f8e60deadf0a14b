from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ranker.cli.label import evaluate_labels
from ranker.cli.train_labels import train_labels
from ranker.evaluation.intents import reweighted
from ranker.evaluation.labels import response_intent_rows
from ranker.types import Label

app = typer.Typer()
app.command("evaluate")(evaluate_labels)
app.command("train")(train_labels)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A hundred valid and two hundred train conversations of three turns, with a label for each reply."""
    header = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags\n"
    table = ["split\tconv_id\tutterance_idx\trole\tlabel"]
    for split, count in (("train", 200), ("valid", 100)):
        lines = []
        for number in range(count):
            word, reply, intent = (
                ("lost", "Sorry about it", "sympathizing")
                if number % 2
                else ("won", "How was it", "questioning")
            )
            said = [f"I {word} a game {number}.", f"{reply} {number}?", "Yes."]
            lines += [
                f"{split}{number},{turn},sad,A game.,{(turn - 1) % 2},{text},,\n"
                for turn, text in enumerate(said, start=1)
            ]
            table += [f"{split}\t{split}{number}\t{turn}\tx\t{intent}" for turn in range(4)]
        (tmp_path / f"{split}.csv").write_text(header + "".join(lines), "utf-8")
    (tmp_path / "ed_labels.tsv").write_text("\n".join(table), "utf-8")
    return tmp_path


def test_rows_are_the_listeners_replies(corpus: Path) -> None:
    rows = response_intent_rows(corpus, corpus, "valid")
    assert len(rows) == 100
    pair, name = rows[1]
    assert (pair.context.turns, pair.response, name) == (
        ("I lost a game 1.",),
        "Sorry about it 1?",
        "sympathizing",
    )


def test_the_weight_by_hand() -> None:
    """The encoder cannot tell the replies apart; half of the contexts expect intent a, half b. With the true
    intents known, each of 100 is among 50 that tie: still none is right, but the others rank below."""
    ones = np.ones((100, 1), np.float32)
    kinds = np.arange(100) % 2
    probabilities = np.where(np.arange(2) == kinds[:, None], 0.9, 0.1).astype(np.float32)
    labels: list[tuple[Label, ...]] = [(Label("intent", "ab"[kind]),) for kind in kinds]
    texts = [str(number) for number in range(100)]
    plain, weighted = reweighted(ones, ones, texts, probabilities, labels, "ab", weights=(0.0, 1.0))
    assert plain.precision.mean_rank.mean == 100
    assert weighted.precision.mean_rank.mean == 50
    # Without an intent the first reply is of average likelihood, 0.5: in its own context the 49 others of
    # intent a beat it, and in theirs it no longer ties with them.
    labels[0] = ()
    (without,) = reweighted(ones, ones, texts, probabilities, labels, "ab", weights=(1.0,))
    assert without.precision.mean_rank.mean == pytest.approx((50 + 49 * 49 + 50 * 50) / 100)


def test_train_and_evaluate(corpus: Path) -> None:
    data = ["--data", f"ed={corpus}", "--data", f"intents={corpus}", "--encoder", "hashing"]
    done = CliRunner().invoke(app, ["train", "response-intent", *data])
    assert done.exit_code == 0, (done.output, done.exception)
    done = CliRunner().invoke(app, ["evaluate", "--kind", "response-intent", *data, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert found["top_1"] > 90
    assert found["weighted"]["f1"] > 0.9
    assert found["reweighting"][0]["weight"] == 0.0
    assert len(found["reweighting"]) == 5
