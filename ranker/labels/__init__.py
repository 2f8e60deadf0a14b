"""Labelers: emotion, intent and topic of a text, by fastText, by a head on vectors, or by any callable."""

from ranker.labels.black_box import BlackBoxLabeler, Classifier
from ranker.labels.fasttext import FastTextLabeler
from ranker.labels.head import HeadLabeler, VectorHead, read_head, write_head
from ranker.labels.loading import HEAD, load_labeler, model_folder
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
    "RESPONSE_INTENTS",
    "TOPICS",
    "TOPIC_OF_NEWSGROUP",
    "BlackBoxLabeler",
    "Classifier",
    "FastTextLabeler",
    "HeadLabeler",
    "VectorHead",
    "as_kind",
    "check_names",
    "load_labeler",
    "model_folder",
    "names_of",
    "read_head",
    "write_head",
]
