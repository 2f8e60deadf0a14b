"""What the readers yield: dialogues, and the pairs and candidates that are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ranker.types import Candidate, Context, Label, Provenance, Utterances

LISTENER = 1
"""The speaker number of the one who listens and replies, in corpora that have such a role."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance. `text` is clean and not empty; `speaker` counts from 0 by first appearance.

    `candidates` are the replies among which the corpus itself asks to choose this one.
    """

    text: str
    speaker: int
    labels: tuple[Label, ...] = ()
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation: at least one turn, oldest first.

    `labels` hold for the whole of it. `first_response` is the place (from 0) of the first turn that counts as
    a response: 1 in a conversation, the last place in a row of a file of pairs, 0 for a lone reply.
    """

    corpus: str
    id: str
    turns: tuple[Turn, ...]
    labels: tuple[Label, ...] = ()
    situation: str = ""
    first_response: int = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """A context and the reply that a person gave to it."""

    context: Context
    response: str
    labels: tuple[Label, ...]
    provenance: Provenance
    candidates: tuple[str, ...] = ()


@dataclass(slots=True)
class ReadReport:
    """What a reader met: `rows` seen, `bad` ones left out and why, and remarks on rows that were kept."""

    rows: int = 0
    bad: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def reject(self, reason: str) -> None:
        """Count the row at hand as bad."""
        self.bad += 1
        self.reasons[reason] += 1

    def remark(self, what: str) -> None:
        """Count something odd about a row that is kept."""
        self.remarks[what] += 1

    def summary(self) -> str:
        """One line for people, such as `120 rows, 2 left out (2 without text)`."""
        line = f"{self.rows:,} rows"
        if self.bad:
            line += f", {self.bad:,} left out ({_counts(self.reasons)})"
        if self.remarks:
            line += f"; {_counts(self.remarks)}"
        return line


def pairs(dialogues: Iterable[Dialogue], *, window: int = 4, listener_only: bool = False) -> Iterator[Pair]:
    """Every response with the last `window` turns before it; replies without a context are passed over.

    A pair carries the labels of the response itself, then those of the dialogue.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, not {window}")
    for dialogue in dialogues:
        for place in range(max(dialogue.first_response, 1), len(dialogue.turns)):
            turn = dialogue.turns[place]
            if listener_only and turn.speaker != LISTENER:
                continue
            before = dialogue.turns[max(0, place - window) : place]
            yield Pair(
                context=Context(tuple(said.text for said in before)),
                response=turn.text,
                labels=turn.labels + dialogue.labels,
                provenance=Provenance(dialogue.corpus, dialogue.id, place + 1),
                candidates=turn.candidates,
            )


def candidates(dialogues: Iterable[Dialogue], *, pool: str, utterances: Utterances) -> Iterator[Candidate]:
    """The utterances that a pool is made of, each with its provenance and labels, not yet cleaned.

    Ids (`pool:conversation:turn`) stay the same from one reading to the next.
    """
    for dialogue in dialogues:
        for place, turn in enumerate(dialogue.turns):
            if utterances == "listener" and turn.speaker != LISTENER:
                continue
            if utterances == "response" and place < dialogue.first_response:
                continue
            yield Candidate(
                id=f"{pool}:{dialogue.id}:{place + 1}",
                text=turn.text,
                pool=pool,
                labels=turn.labels + dialogue.labels,
                provenance=Provenance(dialogue.corpus, dialogue.id, place + 1),
            )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counter.most_common())
