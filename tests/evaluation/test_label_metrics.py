"""Each figure beside a calculation by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ranker.errors import CorpusError, InputError, NotFoundError
from ranker.evaluation.labels import emotion_rows, intent_rows, manual_intent_rows, measure, plot_confusion
from ranker.types import Label

NAMES = ("a", "b", "c", "d")


def ranked(*names: str, first: float = 0.5) -> tuple[Label, ...]:
    return tuple(Label("emotion", name, first if place == 0 else 0.1) for place, name in enumerate(names))


def test_figures_by_hand() -> None:
    """Truths a a b c; first predictions a b b a: right are the first and the third.

    a: precision 1/2, recall 1/2, F1 1/2. b: precision 1/2, recall 1, F1 2/3. c: all 0. d does not occur.
    """
    predicted = [ranked("a", "b", "c"), ranked("b", "c", "d", "a"), ranked("b", "a"), ranked("a", "b", "c")]
    found = measure(predicted, ["a", "a", "b", "c"], NAMES)
    assert (found.rows, found.top_1, found.top_3, found.top_5) == (4, 50.0, 75.0, 100.0)
    assert found.macro.precision == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert found.macro.recall == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found.macro.f1 == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    assert found.weighted.precision == pytest.approx((2 * 1 / 2 + 1 / 2 + 0) / 4)
    assert found.weighted.recall == pytest.approx((2 * 1 / 2 + 1 + 0) / 4)
    assert found.weighted.f1 == pytest.approx((2 * 1 / 2 + 2 / 3 + 0) / 4)
    assert found.confusion.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_calibration_by_hand() -> None:
    """Two rows said with 0.9, one right: |1.8 - 1|. Two with 0.3, none right: |0.6 - 0|. Over four rows."""
    predicted = [
        ranked("a", first=0.9),
        ranked("a", first=0.9),
        ranked("a", first=0.3),
        ranked("a", first=0.3),
    ]
    found = measure(predicted, ["a", "b", "b", "b"], NAMES)
    assert found.calibration_error == pytest.approx((0.8 + 0.6) / 4)
    certain = measure([ranked("a", first=1.0)], ["a"], NAMES)
    assert certain.calibration_error == 0.0


def test_a_row_without_a_prediction_is_wrong() -> None:
    found = measure([(), ranked("a")], ["a", "a"], NAMES)
    assert found.top_5 == 50.0
    assert found.weighted.recall == 0.5
    assert found.weighted.precision == 1.0
    assert found.confusion.sum() == 1


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be measured"):
        measure([], [], NAMES)
    with pytest.raises(InputError, match="cannot be measured"):
        measure([ranked("a")], ["a", "b"], NAMES)
    with pytest.raises(InputError, match="'zest'"):
        measure([ranked("a")], ["zest"], NAMES)
    with pytest.raises(InputError, match="'zest'"):
        measure([ranked("zest")], ["a"], NAMES)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figures = measure([ranked("a"), ranked("b")], ["a", "a"], NAMES)
    plot_confusion(figures, tmp_path / "deep" / "plot.png", "test")
    data = (tmp_path / "deep" / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 5000


def dialogues(folder: Path, emotion: str = "proud") -> Path:
    header = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags"
    rows = [
        f"c1,1,{emotion},My daughter won_comma_ again.,0,She won again!,,",
        f"c1,2,{emotion},My daughter won_comma_ again.,1,How wonderful!,,",
        f"c1,3,{emotion},My daughter won_comma_ again.,0,It is.,,",
        f"c1,4,{emotion},My daughter won_comma_ again.,1,What did she win?,,",
    ]
    (folder / "valid.csv").write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return folder


def test_emotion_rows(tmp_path: Path) -> None:
    rows = emotion_rows(dialogues(tmp_path), "valid")
    assert rows.situations == [("My daughter won, again.", "proud")]
    assert [(context.turns, name) for context, name in rows.contexts] == [
        (("She won again!",), "proud"),
        (("She won again!", "How wonderful!", "It is."), "proud"),
    ]
    with pytest.raises(NotFoundError, match="Did you mean 'proud'"):
        emotion_rows(dialogues(tmp_path, emotion="prowd"), "valid")


def table(folder: Path, labels: list[str], split: str = "valid") -> Path:
    lines = ["split\tconv_id\tutterance_idx\trole\tlabel"]
    lines += [f"{split}\tc1\t{number}\tspeaker\t{label}" for number, label in enumerate(labels)]
    path = folder / "ed_labels.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_intent_rows(tmp_path: Path) -> None:
    dialogues(tmp_path)
    names = ["proud", "proud", "acknowledging", "agreeing", "questioning"]
    found = intent_rows(tmp_path, table(tmp_path, names), "valid")
    assert found[1] == ("How wonderful!", "acknowledging")
    assert [name for _, name in found] == names[1:]
    assert intent_rows(tmp_path, tmp_path, "valid") == found
    with pytest.raises(CorpusError, match="labels no utterance"):
        intent_rows(tmp_path, table(tmp_path, names[:-1]), "valid")  # a number is missing
    with pytest.raises(CorpusError, match="labels no utterance"):
        intent_rows(tmp_path, table(tmp_path, names, split="train"), "valid")
    with pytest.raises(NotFoundError, match="questioning"):
        intent_rows(tmp_path, table(tmp_path, [*names[:-1], "questionning"]), "valid")


def test_manual_intent_rows(tmp_path: Path) -> None:
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual" / "wishing.txt").write_text("All the best!\n\nGood luck. \n", "utf-8")
    (tmp_path / "manual" / "another.txt").write_text("left out\n", "utf-8")
    assert manual_intent_rows(tmp_path) == [("All the best!", "wishing"), ("Good luck.", "wishing")]
    assert manual_intent_rows(tmp_path / "none") == []


def test_bundled_emotion_model_on_real_situations(shared_data: Path) -> None:
    from ranker.labels import EMOTIONS, load_labeler

    rows = emotion_rows(shared_data / "ed", "valid").situations
    found = measure(
        load_labeler("emotion").predict([text for text, _ in rows], 5), [n for _, n in rows], EMOTIONS
    )
    assert found.rows > 2_700
    assert found.top_1 > 45.0
    assert found.top_5 > 78.0
    assert np.trace(found.confusion) == round(found.top_1 * found.rows / 100)
