"""What a generator that runs on this machine offers beside answering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from ranker.corpora import Pair
from ranker.types import Context, Reply


@runtime_checkable
class LocalGenerator(Protocol):
    """A `Fallback` whose weights are at hand. They are read at the first need, by whichever method comes
    first; it raises IntegrityError where a file is damaged, MissingExtraError where torch is not installed.
    Threads may share it."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer_name(self) -> str:
        """What the tokens of `loglikelihood` are, for a table: "words, 13,204" or "SmolLM2 BPE, 49,152".
        Known without the weights: `isinstance` asks for it."""
        ...

    def load(self) -> None:
        """Read the weights now, rather than while someone waits for a reply."""
        ...

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply: ...
    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]: ...
    def loglikelihood(self, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
        """For each pair, the natural log probability of the response and the end token after it, given the
        context, and the number of tokens, the end token among them. A response is never cut for it."""
        ...
