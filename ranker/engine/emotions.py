"""What the user feels, and what each candidate expresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ranker.errors import MismatchError, NotFoundError
from ranker.home import Home
from ranker.labels import HEAD, FastTextLabeler, VectorHead, load_labeler, model_folder, read_head
from ranker.types import Candidate, Context, Label, Vectors


class EmotionDetector:
    """The user's emotions: by the head on the encoder's vectors where one was trained for this encoder, else
    by fastText on the last turn."""

    def __init__(self, fingerprint: str, home: Home) -> None:
        self._model: VectorHead | FastTextLabeler
        try:
            self._model = read_head(model_folder(HEAD, home), encoder=fingerprint)
        except (NotFoundError, MismatchError):
            self._model = load_labeler("emotion", home=home)

    def detect(self, context: Context, vector: Vectors, k: int = 3) -> tuple[Label, ...]:
        """The k most probable emotions; `vector` (1, dim) is that of the context."""
        if isinstance(self._model, VectorHead):
            return self._model.predict_vectors(vector, k)[0]
        return self._model.predict([context.last], k)[0]


def with_predicted_labels(candidates: Sequence[Candidate], home: Home) -> list[Candidate]:
    """The candidates with a predicted intent before their own labels, and a predicted emotion where the
    corpus gives none."""
    texts = [candidate.text for candidate in candidates]
    intents = load_labeler("intent", home=home).predict(texts, 1)
    emotions = load_labeler("emotion", home=home).predict(texts, 1)
    return [
        replace(
            candidate,
            labels=intent + candidate.labels + (() if candidate.label("emotion") else emotion),
        )
        for candidate, intent, emotion in zip(candidates, intents, emotions, strict=True)
    ]
