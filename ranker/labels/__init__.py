"""Labelers: emotion, intent and topic of a text, by fastText, by a head on vectors, or by any callable."""

from ranker.labels.black_box import BlackBoxLabeler, Classifier
from ranker.labels.fasttext import FastTextLabeler
from ranker.labels.head import HeadLabeler, VectorHead, read_head, write_head
from ranker.labels.loading import HEAD, RESPONSE_INTENT, load_labeler, model_folder
from ranker.labels.prepend import Prepend, Prepender, has_prepender, open_prepender, read_prepender
from ranker.labels.taxonomy import (
    EMOTIONS,
    INTENTS,
    KINDS,
    RESPONSE_INTENTS,
    TOPIC_OF_NEWSGROUP,
    TOPICS,
    as_kind,
    check_names,
    names_of,
)

__all__ = [
    "EMOTIONS",
    "HEAD",
    "INTENTS",
    "KINDS",
    "RESPONSE_INTENT",
    "RESPONSE_INTENTS",
    "TOPICS",
    "TOPIC_OF_NEWSGROUP",
    "BlackBoxLabeler",
    "Classifier",
    "FastTextLabeler",
    "HeadLabeler",
    "Prepend",
    "Prepender",
    "VectorHead",
    "as_kind",
    "check_names",
    "has_prepender",
    "load_labeler",
    "model_folder",
    "names_of",
    "open_prepender",
    "read_head",
    "read_prepender",
    "write_head",
]
