"""From text to ranked replies, and from a corpus to an index."""

from ranker.engine.answers import Draft, ReplyStream
from ranker.engine.boosts import Boosts
from ranker.engine.fallback import FallbackSettings, When
from ranker.engine.indexes import DEFAULT_INDEX, Filters, index_folder, index_names
from ranker.engine.ranker import Ranker

__all__ = [
    "DEFAULT_INDEX",
    "Boosts",
    "Draft",
    "FallbackSettings",
    "Filters",
    "Ranker",
    "ReplyStream",
    "When",
    "index_folder",
    "index_names",
]
