"""The generator `chat`: a pretrained chat model with a trained adapter (see `chat_base`, `chat_adapter`).

Beside answering, its selection head scores replies (a `Reranker`), and its emotion head reads contexts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ranker.corpora import Pair
from ranker.errors import GenerationError, MissingExtraError
from ranker.generation.chat_adapter import AdapterCard, read_adapter, read_card
from ranker.generation.chat_base import checked_base, open_base, shape_of
from ranker.generation.chat_prompt import ChatPrompt, load_tokenizer
from ranker.generation.decoding import Ends, LogProbs, deadline_of, diverse_beam_search, sample
from ranker.generation.folder import GeneratorFolder
from ranker.generation.openai.utterance import Utterance
from ranker.generation.settings import GenerationSettings
from ranker.home import Home
from ranker.types import Context, Label, Reply

if TYPE_CHECKING:
    import torch

    from ranker.generation.chat_model import ChatModel, Row

KIND = "chat"
_BATCH = 16
_MAX_CHARACTERS = 600
_LONGEST_SCORED = 64
"""Tokens of a text that the selection head reads."""


def load(root: Path, settings: GenerationSettings, home: Home) -> ChatGenerator:
    """The generator of the adapter in `root` on the base in `home`; weights are read at the first need.

    Raises NotFoundError where the base is missing, MismatchError where it is of another size, IntegrityError.
    """
    adapter = GeneratorFolder.open(root, KIND)
    base = open_base(home)
    read_card(adapter).require(shape_of(base.path), str(base.root))
    return ChatGenerator(root.name, adapter, base, settings)


@dataclass(frozen=True, slots=True)
class LoadedChat:
    """A base with its adapter. `ends` and `banned`: token ids that end a reply, and that none may hold."""

    model: ChatModel
    prompt: ChatPrompt
    card: AdapterCard
    ends: frozenset[int]
    banned: frozenset[int]


class ChatGenerator:
    """A `LocalGenerator` and `Reranker`. Samples unless the settings ask for beams; a beam's reply is
    streamed once it is found. Threads may share it: they take turns token by token."""

    def __init__(
        self, name: str, adapter: GeneratorFolder, base: GeneratorFolder, settings: GenerationSettings
    ) -> None:
        self._name, self._adapter, self._base, self._settings = name, adapter, base, settings
        self._loaded: LoadedChat | None = None
        self._loading, self._computing = threading.Lock(), threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def tokenizer_name(self) -> str:
        card = read_card(self._adapter)
        return f"BPE of {card.base.rpartition('/')[2]}, {card.shape.vocabulary:,}"

    def load(self) -> None:
        self._need()

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        """Raises GenerationError where there is no reply in time. `hints` are not used."""
        details = {"generator": self._name, "stopped": "end"}
        text = "".join(self._pieces(context, details))
        return Reply(text, "generated", details=details)

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        return self._pieces(context, {})

    def loglikelihood(self, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
        """See `LocalGenerator`."""
        import torch

        from ranker.generation.chat_model import Row, packed

        loaded = self._need()
        found: list[tuple[float, int]] = [(0.0, 0)] * len(pairs)
        texts = [
            (
                place,
                loaded.prompt.prompt(pair.context),
                [*loaded.prompt.reply(pair.response), loaded.prompt.end],
            )
            for place, pair in enumerate(pairs)
        ]
        texts.sort(key=lambda text: len(text[1]) + len(text[2]))  # little padding
        for start in range(0, len(texts), _BATCH):
            chunk = texts[start : start + _BATCH]
            with self._computing, torch.inference_mode():
                hidden = loaded.model.hidden(packed([Row([*prompt, *reply]) for _, prompt, reply in chunk]))
                for (place, prompt, reply), states in zip(chunk, hidden, strict=True):
                    first = len(prompt) - 1
                    scores = loaded.model.scores(states[first : first + len(reply)]).log_softmax(dim=-1)
                    each = scores.gather(1, torch.tensor(reply)[:, None])
                    found[place] = (math.fsum(each[:, 0].tolist()), len(reply))
        return found

    def score(self, context: Context, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): how well each would do as the reply; only differences mean something."""
        from ranker.generation.chat_model import Row

        loaded = self._need()
        prompt = loaded.prompt.prompt(context)
        found: list[float] = []
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            branches = [
                [*loaded.prompt.reply(text)[: _LONGEST_SCORED - 1], loaded.prompt.end] for text in some
            ]
            row = Row(prompt, branches, fork=len(prompt))
            ends = [row.branch_start(number) + len(reply) - 1 for number, reply in enumerate(branches)]
            hidden = self._hidden(loaded.model, [row], [(0, end) for end in ends])
            found += loaded.model.selection_scores(hidden).tolist()
        return np.array(found, np.float32)

    def emotions(self, contexts: Sequence[Context]) -> list[tuple[Label, ...]]:
        """All emotions of each context, most probable first."""
        from ranker.generation.chat_model import Row

        loaded = self._need()
        found: list[tuple[Label, ...]] = []
        for start in range(0, len(contexts), _BATCH):
            rows = [Row(loaded.prompt.prompt(context)) for context in contexts[start : start + _BATCH]]
            places = [(at, row.tokens - 1) for at, row in enumerate(rows)]
            scores = loaded.model.emotion_scores(self._hidden(loaded.model, rows, places))
            for probabilities in scores.softmax(dim=-1).tolist():
                named = zip(loaded.card.emotions, probabilities, strict=True)
                ordered = sorted(named, key=lambda one: -one[1])
                found.append(tuple(Label("emotion", name, share) for name, share in ordered))
        return found

    def _pieces(self, context: Context, details: dict[str, str]) -> Iterator[str]:
        loaded = self._need()
        deadline = deadline_of(self._settings)
        prompt = loaded.prompt.prompt(context)
        ends = Ends(prompt[-1], loaded.ends, loaded.banned)
        said = Utterance(_MAX_CHARACTERS)
        ids: list[int] = []
        shown = 0
        is_finished = False
        for token in self._tokens(loaded, prompt, ends, deadline):
            ids.append(token)
            text = loaded.prompt.text(ids)
            if text.endswith("\ufffd"):  # half a character
                continue
            if piece := said.add(text[shown:]):
                yield piece
            shown = len(text)
            if said.is_full:
                break
        else:
            is_finished = len(ids) < self._settings.max_tokens
        details["stopped"] = "end" if is_finished else "length"
        if piece := said.end(is_cut=not is_finished):
            yield piece
        if not said.text:
            raise GenerationError(f"the generator {self._name!r} had nothing to say")

    def _tokens(
        self, loaded: LoadedChat, prompt: Sequence[int], ends: Ends, deadline: float
    ) -> Iterator[int]:
        from ranker.generation.chat_model import Continuation

        continuation = Continuation(loaded.model, prompt)

        is_first = True

        def step(parents: Sequence[int], tokens: Sequence[int]) -> LogProbs:
            nonlocal is_first
            with self._computing:
                found = continuation(parents, tokens)
            if is_first:  # no reply is empty
                found[:, list(ends.ends)] = -np.inf
                is_first = False
            return found

        if self._settings.decoding != "beam":
            yield from sample(step, ends, self._settings, deadline)
            return
        found = diverse_beam_search(step, ends, self._settings, deadline)
        yield from next((one.tokens for one in found if one.tokens), ())

    def _hidden(
        self, model: ChatModel, rows: Sequence[Row], places: Sequence[tuple[int, int]]
    ) -> torch.Tensor:
        """(places, width): the hidden states at `places` (row, token)."""
        import torch

        from ranker.generation.chat_model import packed

        at = torch.tensor(places)
        with self._computing, torch.inference_mode():
            return model.hidden(packed(rows))[at[:, 0], at[:, 1]]

    def _need(self) -> LoadedChat:
        with self._loading:
            if self._loaded is None:
                self._loaded = read_chat(self._adapter, self._base, persona=self._settings.persona)
            return self._loaded


def read_chat(
    adapter: GeneratorFolder, base: GeneratorFolder, *, persona: str = "", dtype: torch.dtype | None = None
) -> LoadedChat:
    """Check the files, read the weights and add the updates into them; in the best dtype of the processor.

    Raises IntegrityError, MismatchError, MissingExtraError.
    """
    try:
        from ranker.generation.chat_model import ChatModel, best_dtype, load_lm
    except ImportError as error:
        raise MissingExtraError.of(f"the generator in {adapter.root}", "train") from error
    updates = read_adapter(adapter)
    card = updates.card
    folder = checked_base(base)
    card.require(shape_of(folder), str(base.root))
    tokenizer = load_tokenizer(folder)
    prompt = ChatPrompt(tokenizer, replace(card.prompt, persona=persona or card.prompt.persona))
    model = ChatModel(load_lm(folder, dtype or best_dtype()), emotions=len(card.emotions))
    model.take(updates)
    model.requires_grad_(False)
    return LoadedChat(model, prompt, card, prompt.ends, frozenset(tokenizer.all_special_ids) - prompt.ends)
