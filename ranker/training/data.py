"""From corpora to tokenised training pairs.

Texts are tokenised once, before training, by the layout that answering uses: what is trained on is what will
be asked, and a step costs no tokenising.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ranker.corpora import Pair, ReadReport, pairs, read_dialogues
from ranker.encoders.layout import TokenLayout
from ranker.errors import ConfigError, CorpusError, NotFoundError, TrainingError
from ranker.safety.profanity import is_profane
from ranker.training.settings import StageSettings

if TYPE_CHECKING:
    from datasets import Dataset

_READERS = {"ed": "empathetic_dialogues"}
"""Short names of corpora; any other name is the reader's own."""


class Choice(Protocol):
    """Which pairs are trained on; see StageSettings."""

    @property
    def corpora(self) -> tuple[str, ...]: ...
    @property
    def listener_only(self) -> bool: ...
    @property
    def pairs(self) -> int: ...
    @property
    def min_words(self) -> int: ...
    @property
    def max_words(self) -> int: ...
    @property
    def profane(self) -> Literal["keep", "drop"]: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def seed(self) -> int: ...


def parse_data(flags: Sequence[str]) -> dict[str, Path]:
    """`--data name=path` flags as a mapping. Raises ConfigError for one of another form."""
    found: dict[str, Path] = {}
    for flag in flags:
        name, equals, path = flag.partition("=")
        if not (equals and name and path):
            raise ConfigError(f"--data {flag!r} is not of the form corpus=path", fix="Write --data ed=FOLDER")
        found[name] = Path(path).expanduser()
    return found


def has_listener(corpus: str) -> bool:
    """Whether the second speaker of the corpus is a listener, whose replies alone are measured."""
    return _READERS.get(corpus, corpus) == "empathetic_dialogues"


def read_pairs(corpus: str, path: Path, split: str, *, listener_only: bool) -> list[Pair]:
    """All pairs of a corpus's split. Raises CorpusError where there is none."""
    dialogues = read_dialogues(_READERS.get(corpus, corpus), path, split, ReadReport())
    found = list(pairs(dialogues, listener_only=listener_only))
    if not found:
        raise CorpusError(f"no pair in the split {split!r} of {path}")
    return found


def stage_pairs(stage: Choice, data: Mapping[str, Path]) -> list[Pair]:
    """The training pairs of a stage, `stage.pairs` of them drawn by its seed where that is set.

    Raises TrainingError where a corpus has no path, or too few pairs are left for one batch.
    """
    found: list[Pair] = []
    for corpus in stage.corpora:
        if corpus not in data:
            raise TrainingError(f"the preset trains on {corpus!r}", fix=f"Add --data {corpus}=PATH")
        read = read_pairs(corpus, data[corpus], "train", listener_only=stage.listener_only)
        found += [pair for pair in read if _is_wanted(pair.response, stage)]
    if stage.pairs and stage.pairs < len(found):
        found = random.Random(stage.seed).sample(found, stage.pairs)
    if len(found) < stage.batch_size:
        raise TrainingError(
            f"{len(found):,} pairs do not fill a batch of {stage.batch_size}",
            fix="Lower batch_size, or add data",
        )
    return found


def feedback_pairs(path: Path) -> list[Pair]:
    """The edits that `ranker feedback export` wrote.

    Raises NotFoundError where the file is missing, CorpusError where there is none in it, or one that cannot
    be read: a person wrote each of them.
    """
    fix = "Write it: ranker feedback export --out FILE"
    if not path.is_file():
        raise NotFoundError(f"there is no file of feedback at {path}", fix=fix)
    report = ReadReport()
    try:
        found = list(pairs(read_dialogues("generic", path, "train", report)))
    except CorpusError as error:
        raise CorpusError(f"there is no feedback in {path} ({report.summary()})", fix=fix) from error
    if report.bad or not found:
        raise CorpusError(f"{path} does not hold pairs of feedback ({report.summary()})", fix=fix)
    return found


def with_feedback(found: Sequence[Pair], feedback: Sequence[Pair], stage: StageSettings) -> list[Pair]:
    """The pairs of a stage, then those of feedback, as often as the stage says; what it does not want is left
    out. The repeats of one never meet in a batch, having the same response."""
    wanted = [pair for pair in feedback if _is_wanted(pair.response, stage)]
    return [*found, *wanted * stage.feedback_repeats]


def _is_wanted(response: str, stage: Choice) -> bool:
    words = len(response.split())
    return stage.min_words <= words <= stage.max_words and not (
        stage.profane == "drop" and is_profane(response)
    )


def response_key(text: str) -> int:
    """Equal for responses that differ only in case, punctuation or spacing: in one batch, each would be the
    other's false negative."""
    letters = "".join(char for char in text.casefold() if char.isalnum())
    return int.from_bytes(hashlib.blake2b((letters or text).encode(), digest_size=7).digest(), "big")


def pairs_hash(found: Iterable[Pair]) -> str:
    """Identifies the pairs and their order."""
    digest = hashlib.sha256()
    for pair in found:
        digest.update("\x1f".join((*pair.context.turns, pair.response)).encode() + b"\x1e")
    return digest.hexdigest()


def pair_dataset(
    found: Sequence[Pair], layout: TokenLayout, negatives: Sequence[Sequence[str]] = ()
) -> Dataset:
    """Columns: context, response, negative_0.. (token ids), *_key (see `response_key`), row.

    `negatives` holds equally many texts for each pair, or is empty.
    """
    from datasets import Dataset

    columns: dict[str, list[Any]] = {
        "context": [layout.context(pair.context) for pair in found],
        "response": [layout.candidate(pair.response) for pair in found],
        "response_key": [response_key(pair.response) for pair in found],
        "row": list(range(len(found))),
    }
    for place in range(len(negatives[0]) if negatives else 0):
        texts = [row[place] for row in negatives]
        columns[f"negative_{place}"] = [layout.candidate(text) for text in texts]
        columns[f"negative_{place}_key"] = [response_key(text) for text in texts]
    return Dataset.from_dict(columns)
