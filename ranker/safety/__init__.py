"""Safety: which replies may be shown, and which contexts need people rather than chit-chat."""

from __future__ import annotations

from ranker.safety.crisis import Crisis, CrisisDetector
from ranker.safety.messages import CATEGORIES, CrisisCategory, fixed_message
from ranker.safety.replies import ReplyFilter, Verdict
from ranker.safety.settings import SafetySettings

__all__ = [
    "CATEGORIES",
    "Crisis",
    "CrisisCategory",
    "CrisisDetector",
    "ReplyFilter",
    "SafetySettings",
    "Verdict",
    "fixed_message",
]
