"""Whether a reply may be shown, retrieved or generated alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ranker.errors import InputError
from ranker.home import Home
from ranker.safety.classifier import LineClassifier
from ranker.safety.patterns import Breach, breach
from ranker.safety.profanity import is_profane
from ranker.safety.settings import SafetySettings
from ranker.safety.store import model_folder, read_classifier
from ranker.safety.wording import plain_words
from ranker.types import Encoder, Vectors, clean_text

Reason = Literal["profanity", "classifier"] | Breach
_CERTAIN = 0.99  # of what a word list or a pattern finds: on ordinary replies they hardly ever err


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one reply: `probability` that it is unsafe; `reason` is None where it is safe."""

    probability: float
    reason: Reason | None = None

    @property
    def is_safe(self) -> bool:
        return self.reason is None


class ReplyFilter:
    """Finds replies that must not be shown: profanity, slurs, insults, threats, hatred, sexual advances, and
    the encouragement of self-harm or violence. Immutable: safe to share between threads."""

    def __init__(self, classifier: LineClassifier, settings: SafetySettings | None = None) -> None:
        self._classifier = classifier
        self._threshold = (settings or SafetySettings()).reply_threshold

    @classmethod
    def load(cls, settings: SafetySettings | None = None, *, home: Home | None = None) -> ReplyFilter:
        """With the home's classifier where it has one, else the package's.

        Raises NotFoundError where there is none, IntegrityError where it is damaged.
        """
        return cls(read_classifier(model_folder("offence", home), "offence"), settings)

    def reads(self, encoder: Encoder) -> bool:
        """Whether the classifier was fitted to this encoder's vectors; if not, words and patterns decide."""
        return encoder.fingerprint == self._classifier.encoder

    def verdicts(
        self, texts: Sequence[str], vectors: Vectors | None = None, encoder: Encoder | None = None
    ) -> list[Verdict]:
        """A verdict on each reply, in order.

        Words and patterns take microseconds and need no more. The classifier also needs `encoder`; `vectors`
        (texts, dim) are what it makes of the texts as candidates, where they are known; else it encodes the
        texts that are still in question.
        """
        if vectors is not None and len(vectors) != len(texts):
            raise InputError(f"{len(vectors)} vectors were given for {len(texts)} replies")
        cleaned = [clean_text(text) for text in texts]
        words = [plain_words(text) for text in cleaned]
        found = [_by_words(*both) for both in zip(cleaned, words, strict=True)]
        open_rows = [row for row, verdict in enumerate(found) if verdict.is_safe and words[row].strip(" .")]
        if encoder is None or not self.reads(encoder) or not open_rows:
            return found
        if vectors is None:
            chosen = encoder.encode_candidates([cleaned[row] for row in open_rows])
        else:
            chosen = vectors[open_rows]
        likely = self._classifier.probabilities([words[row] for row in open_rows], chosen)
        for row, probability in zip(open_rows, likely, strict=True):
            found[row] = Verdict(probability, "classifier" if probability >= self._threshold else None)
        return found

    def is_safe(self, text: str, vector: Vectors | None = None, encoder: Encoder | None = None) -> bool:
        """Whether one reply may be shown; `vector` is (1, dim)."""
        return self.verdicts([text], vector, encoder)[0].is_safe


def _by_words(text: str, words: str) -> Verdict:
    """The verdict of the word list and the patterns."""
    # Both spellings: the list knows "f*ck", the plain words know "stfu".
    if is_profane(text) or is_profane(words):
        return Verdict(_CERTAIN, "profanity")
    reason = breach(words)
    return Verdict(0.0) if reason is None else Verdict(_CERTAIN, reason)
