"""From text to ranked replies, and from a corpus to an index."""

from ranker.engine.boosts import Boosts
from ranker.engine.ranker import DEFAULT_INDEX, Filters, Ranker, index_folder, index_names

__all__ = ["DEFAULT_INDEX", "Boosts", "Filters", "Ranker", "index_folder", "index_names"]
