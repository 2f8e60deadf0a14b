"""Bundles: index + candidates + manifest, what build-index writes and a ranker opens."""

from ranker.bundle.bundle import Bundle
from ranker.bundle.manifest import Manifest, PoolNote, SegmentNote
from ranker.bundle.writer import add_candidates, remove_candidates, write_bundle

__all__ = [
    "Bundle",
    "Manifest",
    "PoolNote",
    "SegmentNote",
    "add_candidates",
    "remove_candidates",
    "write_bundle",
]
