"""Pairs as examples of the generator `chat`: a conversation once, with all of its replies as targets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranker.corpora import Pair
from ranker.errors import TrainingError
from ranker.generation.chat_model import Row, packed
from ranker.generation.chat_prompt import ChatPrompt

NO_EMOTION = -1


@dataclass(frozen=True, slots=True)
class Target:
    """A reply within an example: its tokens are ids[start:stop], the end of the reply among them."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation up to a reply. `targets`: this reply, then earlier ones that count too."""

    ids: tuple[int, ...]
    targets: tuple[Target, ...]
    conversation: str
    emotion: int = NO_EMOTION

    @property
    def last(self) -> tuple[int, ...]:
        """Token ids of the reply at the end."""
        return self.ids[self.targets[0].start :]


def make_examples(
    pairs: Sequence[Pair], prompt: ChatPrompt, emotions: Sequence[str], *, reply_tokens: int
) -> list[Example]:
    """Examples that hold each pair's response as a target once; of a longer one, its first `reply_tokens`.

    A conversation is computed once for all of its replies where the template lets a prompt go on after a
    reply, and where it is short enough; otherwise a reply has an example of its own.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(_conversation(pair), []).append(pair)
    number = {name: place for place, name in enumerate(emotions)}
    return [
        example
        for name, group in groups.items()
        for example in _of_conversation(name, group, prompt, number, reply_tokens)
    ]


def single_example(pair: Pair, prompt: ChatPrompt, emotions: Sequence[str]) -> Example:
    """As the generator would see it: the last turns before the response, which is whole."""
    context = prompt.prompt(pair.context)
    ids = (*context, *prompt.reply(pair.response), prompt.end)
    number = {name: place for place, name in enumerate(emotions)}
    return Example(ids, (Target(len(context), len(ids)),), _conversation(pair), _emotion(pair, number))


class Distractors:
    """For each example, replies of other conversations, always the same ones."""

    def __init__(self, examples: Sequence[Example], *, count: int, share: float, seed: int) -> None:
        """`share` of the examples have `count` of them, the others none. Raises TrainingError where all
        examples are of one conversation."""
        self._examples, self._count, self._share, self._seed = examples, count, share, seed
        if count and share > 0 and len({example.conversation for example in examples}) < 2:
            raise TrainingError("distractors need at least two conversations")

    def of(self, row: int) -> list[tuple[int, ...]]:
        rng = random.Random(f"{self._seed}:{row}")
        own = self._examples[row]
        if rng.random() >= self._share:
            return []
        found: list[tuple[int, ...]] = []
        for _ in range(100 * self._count):  # a corpus of equal replies must not hang it
            if len(found) == self._count:
                break
            other = self._examples[rng.randrange(len(self._examples))]
            if other.conversation != own.conversation and other.last != own.last:
                found.append(other.last)
        return found if len(found) == self._count else []


def make_batch(
    examples: Sequence[Example], distractors: Sequence[Sequence[tuple[int, ...]]]
) -> dict[str, Tensor]:
    """What the loss needs: a packed batch, and (row, token) places of hidden states with what they tell.

    tokens_at, tokens: each token of a reply is told by the place before it. emotions_at, emotions: at the end
    of each prompt. choices_at (choices, 1 + distractors, 2): at the ends of the true reply, then of the
    others.
    """
    rows: list[Row] = []
    tokens_at: list[tuple[int, int]] = []
    tokens: list[int] = []
    emotions_at: list[tuple[int, int]] = []
    emotions: list[int] = []
    choices_at: list[list[tuple[int, int]]] = []
    for at, (example, others) in enumerate(zip(examples, distractors, strict=True)):
        row = Row(example.ids, others, fork=example.targets[0].start)
        rows.append(row)
        for target in example.targets:
            tokens_at += [(at, place - 1) for place in range(target.start, target.stop)]
            tokens += example.ids[target.start : target.stop]
            if example.emotion != NO_EMOTION:
                emotions_at.append((at, target.start - 1))
                emotions.append(example.emotion)
        if others:
            ends = [row.branch_start(number) + len(other) - 1 for number, other in enumerate(others)]
            choices_at.append([(at, place) for place in (len(example.ids) - 1, *ends)])
    return packed(rows) | {
        "tokens_at": torch.tensor(tokens_at),
        "tokens": torch.tensor(tokens),
        "emotions_at": torch.tensor(emotions_at, dtype=torch.long).reshape(-1, 2),
        "emotions": torch.tensor(emotions, dtype=torch.long),
        "choices_at": torch.tensor(choices_at) if choices_at else torch.zeros(0, 1, 2, dtype=torch.long),
    }


def _of_conversation(
    name: str, group: Sequence[Pair], prompt: ChatPrompt, number: Mapping[str, int], reply_tokens: int
) -> list[Example]:
    said: dict[int, str] = {}
    for pair in group:
        turn = pair.provenance.turn
        said |= dict(enumerate(pair.context.turns, turn - len(pair.context.turns)))
        said[turn] = pair.response
    made: list[Example] = []
    left = sorted(group, key=lambda pair: pair.provenance.turn, reverse=True)
    while left:
        last, *earlier = left
        first = last.provenance.turn
        while first - 1 in said:
            first -= 1
        turns = [said[turn] for turn in range(first, last.provenance.turn)]
        fits = sum(len(prompt.reply(turn)) for turn in turns) <= prompt.settings.context_tokens
        context = prompt.conversation(turns) if fits else prompt.prompt(last.context)
        ids = [*context, *_reply(last, prompt, reply_tokens)]
        targets = [Target(len(context), len(ids))]
        left = []
        for pair in earlier:
            place = pair.provenance.turn
            before = (
                prompt.conversation([said[turn] for turn in range(first, place)]) if place > first else []
            )
            reply = [*prompt.reply(pair.response), prompt.end]
            stop = len(before) + len(reply)
            # Whether the conversation goes on from this very reply: a template might put it otherwise.
            if fits and before and stop <= len(context) and context[:stop] == before + reply:
                targets.append(Target(len(before), stop))
            else:
                left.append(pair)
        made.append(Example(tuple(ids), tuple(targets), name, _emotion(last, number)))
    return made


def _reply(pair: Pair, prompt: ChatPrompt, limit: int) -> list[int]:
    return [*prompt.reply(pair.response), prompt.end][:limit]


def _conversation(pair: Pair) -> str:
    return f"{pair.provenance.corpus}:{pair.provenance.conversation}"


def _emotion(pair: Pair, number: Mapping[str, int]) -> int:
    """The dialogue's own, whose label comes after those of the response."""
    names = [label.name for label in pair.labels if label.kind == "emotion" and label.name in number]
    return number[names[-1]] if names else NO_EMOTION
