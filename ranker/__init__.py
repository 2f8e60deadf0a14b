"""Ranks human replies to a conversation, with empathy as its home ground, in milliseconds on a CPU.

from ranker import Ranker

ranker = Ranker.open()
ranker.respond("I finally got promoted at work!").text
"""

from ranker.encoders import load_encoder
from ranker.engine import Boosts, Filters, Ranker
from ranker.errors import RankerError
from ranker.types import Candidate, Context, Encoder, Label, Ranked, Ranking, Response

__all__ = [
    "Boosts",
    "Candidate",
    "Context",
    "Encoder",
    "Filters",
    "Label",
    "Ranked",
    "Ranker",
    "RankerError",
    "Ranking",
    "Response",
    "load_encoder",
]
