"""Whether a conversation needs people rather than chit-chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ranker.home import Home
from ranker.safety.classifier import Floats, LineClassifier, logistic
from ranker.safety.messages import CATEGORIES, CrisisCategory, read_messages
from ranker.safety.patterns import is_distant, stated, without_idioms
from ranker.safety.settings import SafetySettings
from ranker.safety.store import model_folder, read_classifier
from ranker.safety.wording import plain_words
from ranker.types import Context, Encoder, Vectors

_STATED = 0.95  # of a plain statement: about as often it is meant so
_URGENT_FIRST: tuple[CrisisCategory, ...] = ("emergency", "self-harm", "violence")


@dataclass(frozen=True, slots=True)
class Crisis:
    """What a context signals; answer it with `message`."""

    category: CrisisCategory
    probability: float
    message: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of the user: its words without idioms, and the categories that they state."""

    text: str
    words: str
    stated: tuple[CrisisCategory, ...]

    @classmethod
    def of(cls, text: str) -> _Turn:
        words = without_idioms(plain_words(text))
        return cls(text, words, stated(words))

    @property
    def is_plain(self) -> bool:
        return bool(self.stated) and not is_distant(self.words)


class CrisisDetector:
    """Finds self-harm, violence and emergencies in a context. Immutable: safe to share between threads."""

    def __init__(self, classifier: LineClassifier, settings: SafetySettings | None = None) -> None:
        self._classifier = classifier
        self._settings = settings or SafetySettings()
        self._messages = read_messages(self._settings.messages)

    @classmethod
    def load(cls, settings: SafetySettings | None = None, *, home: Home | None = None) -> CrisisDetector:
        """With the home's classifier where it has one, else the package's.

        Raises NotFoundError where there is none, IntegrityError where it is damaged, ConfigError for messages
        that cannot be used.
        """
        return cls(read_classifier(model_folder("crisis", home), "crisis"), settings)

    def reads(self, encoder: Encoder) -> bool:
        """Whether the classifier was fitted to this encoder's vectors: without, only patterns count."""
        return encoder.fingerprint == self._classifier.encoder

    def detect(
        self,
        context: str | Iterable[str] | Context,
        vector: Vectors | None = None,
        encoder: Encoder | None = None,
    ) -> Crisis | None:
        """The crisis in the user's last turns, or None.

        Turns alternate and the last one is the user's. A turn that was already answered by a message of ours
        does not count again. Patterns find plain statements; the classifier the rest, where `encoder` is the
        one that it was fitted to. `vector` (1, dim) is the context's by that encoder, where it is known.
        """
        given = Context.of(context)
        # The models know English: of a turn without a Latin letter they know nothing.
        turns = [turn for text in self._open_turns(given) if (turn := _Turn.of(text)).words.strip(" .")]
        scores = self._scores(turns, given, vector, encoder)
        for place, turn in enumerate(turns):
            row = None if scores is None else scores[place]
            likely = 0.0 if row is None else float(logistic(row[:1])[0])
            if turn.is_plain:
                likely = max(likely, _STATED)
            if likely >= self._settings.crisis_threshold:
                category = _category(turn, row)
                return Crisis(category, likely, self._messages[category])
        return None

    def _open_turns(self, context: Context) -> list[str]:
        """The user's turns to look at, the last first, without those that a message of ours answered."""
        answers = set(self._messages.values())
        places = range(len(context.turns) - 1, -1, -2)[: self._settings.turns]
        return [
            context.turns[place]
            for place in places
            if not answers.intersection(context.turns[place + 1 : place + 2])
        ]

    def _scores(
        self, turns: Sequence[_Turn], context: Context, vector: Vectors | None, encoder: Encoder | None
    ) -> Floats | None:
        """The classifier's scores (turns, outputs), or None where it cannot read the encoder's vectors."""
        if encoder is None or not self.reads(encoder) or not turns:
            return None
        if vector is None or len(context.turns) > 1:
            vector = encoder.encode_contexts([Context((turn.text,)) for turn in turns])
        return self._classifier.scores([turn.words for turn in turns], vector)


def _category(turn: _Turn, scores: Floats | None) -> CrisisCategory:
    """The likeliest of the stated categories, or of all where none is; without scores the most urgent."""
    choices = turn.stated or CATEGORIES
    if scores is None:
        return next(category for category in _URGENT_FIRST if category in choices)
    likely = dict(zip(CATEGORIES, scores[1:].tolist(), strict=True))
    return max(choices, key=lambda category: likely[category])
