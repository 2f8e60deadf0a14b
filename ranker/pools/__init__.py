"""Pools: their cards, the raw data behind them, and the cleaning that makes candidates of it."""

from ranker.pools.cards import PoolCard, create_card, list_cards, load_card
from ranker.pools.cleaning import CleaningReport, CleaningSettings, clean
from ranker.pools.fetch import fetch_raw
from ranker.pools.raw import RawData, Validate, import_raw, raw_data
from ranker.pools.transfer import FetchSettings, RemoteFile, download

__all__ = [
    "CleaningReport",
    "CleaningSettings",
    "FetchSettings",
    "PoolCard",
    "RawData",
    "RemoteFile",
    "Validate",
    "clean",
    "create_card",
    "download",
    "fetch_raw",
    "import_raw",
    "list_cards",
    "load_card",
    "raw_data",
]
