"""Vectors and the search for the nearest: exact in numpy, or fast on FAISS.

Indexes know numbers only and never change once built: a bundle adds rows by adding an index, and removes rows
by masking them.
"""

from ranker.index.build import build_index, load_index, measured_recall, save_index, stand_ins
from ranker.index.exact import ExactIndex, merged
from ranker.index.parameters import APPROXIMATE, KINDS, IndexParameters, Kind, as_kind, choose_kind

__all__ = [
    "APPROXIMATE",
    "KINDS",
    "ExactIndex",
    "IndexParameters",
    "Kind",
    "as_kind",
    "build_index",
    "choose_kind",
    "load_index",
    "measured_recall",
    "merged",
    "save_index",
    "stand_ins",
]
