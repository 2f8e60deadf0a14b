"""The models that came with the package, on lines that they have never seen and on ordinary talk."""

from __future__ import annotations

import pytest

from ranker.encoders import load_encoder
from ranker.evaluation.safety import crisis_figures, offence_figures
from ranker.safety import CrisisDetector, ReplyFilter
from ranker.safety.labelled import check_lines
from ranker.types import Encoder

FALSE_ALARMS = 5.0
CRISIS_RECALL, OFFENCE_RECALL = 82.0, 63.0
"""Per cent that the shipped models keep on the check lines: a little below what was measured, so that a worse
model is noticed. They are no aim, and nothing is tuned towards them."""


@pytest.fixture(scope="module")
def embedded() -> Encoder:
    return load_encoder()


def test_they_fit_the_embedded_encoder(embedded: Encoder) -> None:
    # Where this fails the encoder was replaced: ranker train-safety --out ranker/embedded/safety
    assert CrisisDetector.load().reads(embedded)
    assert ReplyFilter.load().reads(embedded)


def test_crises_on_the_check_lines(embedded: Encoder) -> None:
    lines = check_lines("crisis")
    figures = crisis_figures(CrisisDetector.load(), lines, embedded)
    assert figures.recall.total >= 200
    assert figures.false_alarms.total >= 400
    assert figures.recall.percent >= CRISIS_RECALL
    assert figures.false_alarms.percent <= FALSE_ALARMS


def test_replies_on_the_check_lines(embedded: Encoder) -> None:
    figures = offence_figures(ReplyFilter.load(), check_lines("offence"), embedded)
    assert figures.recall.percent >= OFFENCE_RECALL
    assert figures.false_alarms.percent <= FALSE_ALARMS


@pytest.mark.parametrize(
    "text",
    [
        "I finally got promoted at work!",
        "I'm grateful to be alive",
        "My life is going great right now",
        "Is that serious, doctor?",
        "I feel so lonely since I moved here",
        "this traffic is killing me",
        "hello",
        "🙂",
    ],
)
def test_ordinary_talk_is_no_crisis(embedded: Encoder, text: str) -> None:
    assert CrisisDetector.load().detect(text, encoder=embedded) is None


def test_ordinary_replies_pass(embedded: Encoder) -> None:
    texts = [
        "Congratulations!",
        "I'm so sorry for your loss.",
        "That must have been hard.",
        "What happened next?",
    ]
    assert all(verdict.is_safe for verdict in ReplyFilter.load().verdicts(texts, encoder=embedded))
