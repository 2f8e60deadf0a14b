"""Getting a pool's full corpus from its source."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from ranker.errors import DownloadError
from ranker.home import Home
from ranker.pools.cards import PoolCard
from ranker.pools.raw import Validate, install
from ranker.pools.transfer import FetchSettings, RemoteFile, download
from ranker.storage import exclusive, storage_errors
from ranker.types import Progress


def fetch_raw(
    card: PoolCard,
    home: Home,
    progress: Progress | None = None,
    *,
    validate: Validate,
    settings: FetchSettings | None = None,
) -> Path:
    """Download the card's archive, check its size and sha256, unpack it, and make it the pool's full corpus.

    `progress` counts bytes. What arrived of an interrupted download is kept and resumed the next time; a file
    that does not match its checksum is deleted. Raises DownloadError, and what `import_raw` raises.
    Returns the folder that holds the corpus now.
    """
    if not card.url:
        raise DownloadError(
            f"pool {card.name!r} has no download", fix=card.how_to_get or f"Run: {card.next_step}"
        )
    if urlsplit(card.url).scheme not in ("http", "https"):
        raise DownloadError(f"the url of pool {card.name!r} is not http(s): {card.url}")
    file = RemoteFile(
        card.url,
        card.sha256,
        card.size_bytes,
        fetch_command=f"ranker fetch {card.name}",
        import_command=f"ranker import {card.name} PATH",
    )
    folder = home.pools / card.name
    with exclusive(folder, "fetching"):
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        name = Path(urlsplit(card.url).path).name or "download"
        part = folder / f"{name}.part"
        download(file, part, progress, settings)
        final = install(card, part, home, validate=validate, name=name)
        part.unlink()
        return final
