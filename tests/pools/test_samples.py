"""The bundled samples keep what they promise: enough of each kind, well-formed, no repeats."""

from __future__ import annotations

from collections import Counter

import pytest

from ranker.corpora import Dialogue, ReadReport, candidates, read_dialogues
from ranker.home import Home, packaged_pools
from ranker.pools import CleaningSettings, clean, load_card, raw_data
from ranker.safety.profanity import is_profane


def sample_of(name: str) -> list[Dialogue]:
    home = Home.find()
    card = load_card(name, home)
    raw = raw_data(card, home)
    assert raw.is_sample
    assert raw.path == packaged_pools() / name / "sample"
    report = ReadReport()
    dialogues = list(read_dialogues(card.reader, raw.path, card.split, report))
    assert (report.bad, report.remarks) == (0, {})
    return dialogues


def label_counts(dialogues: list[Dialogue]) -> Counter[str]:
    return Counter(label.name for dialogue in dialogues for label in dialogue.labels)


def test_ed_has_twelve_conversations_for_each_emotion() -> None:
    dialogues = sample_of("ed")
    counts = label_counts(dialogues)
    assert len(counts) == 32
    assert min(counts.values()) >= 12
    assert {len(dialogue.turns) for dialogue in dialogues} <= {4, 5, 6}
    assert all(dialogue.situation for dialogue in dialogues)
    assert len({dialogue.id for dialogue in dialogues}) == len(dialogues)


def test_dailydialog_covers_its_ten_topics() -> None:
    dialogues = sample_of("dailydialog")
    counts = label_counts(dialogues)
    assert len(dialogues) >= 120
    assert len(counts) == 10
    assert min(counts.values()) >= 10
    acts = Counter(label.name for dialogue in dialogues for turn in dialogue.turns for label in turn.labels)
    assert {"inform", "question", "directive", "commissive", "happiness", "sadness"} <= set(acts)


def test_reddit_has_pairs_on_many_topics() -> None:
    dialogues = sample_of("reddit")
    assert len(dialogues) >= 400
    assert all(len(dialogue.turns) == 2 for dialogue in dialogues)
    assert len(label_counts(dialogues)) >= 20


@pytest.mark.parametrize("name", ["ed", "dailydialog", "reddit"])
def test_the_cleaner_drops_less_than_one_percent(name: str) -> None:
    made = list(candidates(sample_of(name), pool=name, utterances="all"))
    kept, report = clean(made, CleaningSettings())
    assert len(kept) > 0.99 * len(made), report.summary()
    assert not any(is_profane(candidate.text) for candidate in made)
    assert len({candidate.id for candidate in made}) == len(made)
