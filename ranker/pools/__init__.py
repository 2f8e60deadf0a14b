"""Pools: their cards, the raw data behind them, and the cleaning that makes candidates of it."""

from ranker.pools.cards import PoolCard, create_card, list_cards, load_card
from ranker.pools.cleaning import CleaningReport, CleaningSettings, clean
from ranker.pools.fetch import FetchSettings, fetch_raw
from ranker.pools.profanity import is_profane
from ranker.pools.raw import RawData, Validate, import_raw, raw_data

__all__ = [
    "CleaningReport",
    "CleaningSettings",
    "FetchSettings",
    "PoolCard",
    "RawData",
    "Validate",
    "clean",
    "create_card",
    "fetch_raw",
    "import_raw",
    "is_profane",
    "list_cards",
    "load_card",
    "raw_data",
]
