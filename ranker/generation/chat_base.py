"""The pretrained model under the generator `chat`: fetched or imported once, checked at every load.

It is a plain transformers folder (config.json, safetensors, tokenizer.json), kept in the home as a generator
of the kind "chat-base" (see `folder`). Other kinds of weight files, which may run code, are never taken.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ranker.config import from_table, read_toml
from ranker.errors import ConfigError, IntegrityError, NotFoundError
from ranker.generation.folder import GeneratorFolder, Manifest, write_generator
from ranker.home import EMBEDDED, Home
from ranker.pools import FetchSettings, RemoteFile, download
from ranker.storage import exclusive, is_published, read_json, sha256_of, storage_errors
from ranker.types import Progress

KIND = "chat-base"
FETCH, IMPORT = "ranker fetch generator:chat", "ranker import generator:chat FOLDER"
CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "*.safetensors"
_TAKEN = (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    "*.safetensors.index.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
"""Names of the files that an import takes from a folder."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class BaseFile:
    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BaseCard:
    """What is fetched, and how it must arrive. `url` is the folder of the files."""

    hub_id: str
    revision: str
    licence: str
    url: str
    files: tuple[BaseFile, ...]

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError(f"the url of {self.hub_id} is not http(s): {self.url}")
        for file in self.files:
            if not _FILE_NAME.fullmatch(file.name):
                raise ConfigError(f"the card of {self.hub_id} has a file {file.name!r}")
            if not (re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size_bytes > 0):
                raise ConfigError(f"the card of {self.hub_id} has no sha256 and size for {file.name}")

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class BaseShape:
    """What an adapter fits."""

    architecture: str
    """The `model_type` of the base's config, such as "llama"."""
    layers: int
    width: int
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.architecture}, {self.layers} layers of {self.width}, {self.vocabulary:,} tokens"


def base_card() -> BaseCard:
    """The default base, as the package knows it."""
    path = EMBEDDED / "generators" / "chat-base.toml"
    return from_table(BaseCard, read_toml(path), source=str(path))


def base_root(home: Home) -> Path:
    return home.generators / KIND


def open_base(home: Home) -> GeneratorFolder:
    """The base in the home, whose files are not read yet. Raises NotFoundError, IntegrityError."""
    root = base_root(home)
    if not is_published(root):
        raise NotFoundError(
            f"the generator 'chat' needs its base model, which is not in {home.generators}",
            fix=f"Run: {FETCH}, or, with a copy of it: {IMPORT}",
        )
    return GeneratorFolder.open(root, KIND)


def fetch_base(
    card: BaseCard, home: Home, progress: Progress | None = None, *, settings: FetchSettings | None = None
) -> GeneratorFolder:
    """Download the files of the card into the home, each checked against its size and sha256.

    `progress` counts bytes over all files. What arrived is kept and resumed the next time. Raises
    DownloadError, StorageError, and what `import_base` raises.
    """
    root = base_root(home)
    arriving = home.generators / f".{KIND}.arriving"
    with exclusive(root, "fetching"):
        with storage_errors(arriving):
            arriving.mkdir(parents=True, exist_ok=True)
        before = 0
        for file in card.files:
            _fetch_file(card, file, arriving, _shifted(progress, before, card.size_bytes), settings)
            before += file.size_bytes
        folder = _install(root, arriving, f"{card.hub_id}, revision {card.revision}", card.licence)
        shutil.rmtree(arriving, ignore_errors=True)
        return folder


def import_base(source: Path, home: Home, *, licence: str = "unstated") -> GeneratorFolder:
    """Take a transformers folder that the user has as the base; its hashes as they are now are recorded.

    Raises NotFoundError where a file is missing, IntegrityError where one is damaged; the old stays then.
    """
    if not source.is_dir():
        raise NotFoundError(f"there is no folder {source}", fix="Give a transformers folder with safetensors")
    card = base_card()
    shape_of(source)
    with exclusive(base_root(home), "importing"):
        if _is_upstream(source, card):
            origin, licence = f"{card.hub_id}, revision {card.revision}", card.licence
        else:
            origin = f"imported from a folder called {source.resolve().name!r}"
        return _install(base_root(home), source, origin, licence)


def shape_of(folder: Path) -> BaseShape:
    """From a base's config. Raises NotFoundError or IntegrityError where it is no base."""
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        if not any(folder.glob(name)):
            raise NotFoundError(
                f"{folder} has no {name}",
                fix="Give a transformers folder with safetensors",
            )
    config = read_json(folder / CONFIG)
    try:
        values = (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"])
        return BaseShape(str(config["model_type"]), *map(int, values))
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{folder / CONFIG} does not describe a causal language model") from error


def weight_hashes(folder: Path) -> tuple[str, ...]:
    """The sha256 of each weight file, by name. Raises OSError as the disk does."""
    return tuple(sha256_of(file) for file in sorted(folder.glob(WEIGHTS)))


def checked_base(folder: GeneratorFolder) -> Path:
    """The folder of the base once every file of it was found as it was written. Raises IntegrityError."""
    for stamp in folder.manifest.files:
        folder.checked(stamp.name)
    return folder.path


def _fetch_file(
    card: BaseCard, file: BaseFile, arriving: Path, progress: Progress | None, settings: FetchSettings | None
) -> None:
    target = arriving / file.name
    if target.is_file() and target.stat().st_size == file.size_bytes and sha256_of(target) == file.sha256:
        return
    remote = RemoteFile(
        f"{card.url}/{file.name}", file.sha256, file.size_bytes, fetch_command=FETCH, import_command=IMPORT
    )
    part = arriving / f"{file.name}.part"
    download(remote, part, progress, settings)
    with storage_errors(target):
        part.replace(target)


def _install(root: Path, source: Path, origin: str, licence: str) -> GeneratorFolder:
    for file in source.glob(WEIGHTS):
        _check_weights(file)

    def fill(staged: Path) -> None:
        for file in _taken(source):
            shutil.copyfile(file, staged / file.name)

    return write_generator(root, Manifest(kind=KIND, origin=origin, licence=licence), fill)


def _taken(source: Path) -> Iterable[Path]:
    return sorted({file for name in _TAKEN for file in source.glob(name) if file.is_file()})


def _check_weights(file: Path) -> None:
    """The header of a safetensors file says how long it must be."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as weights:
            weights.keys()
    except (SafetensorError, OSError, ValueError) as error:
        raise IntegrityError(f"{file} is not a whole safetensors file ({error})") from error


def _is_upstream(source: Path, card: BaseCard) -> bool:
    """Whether the weights are the very ones of the card."""
    wanted = tuple(file for file in card.files if Path(file.name).match(WEIGHTS))
    sizes = tuple(file.stat().st_size for file in sorted(source.glob(WEIGHTS)))
    if sizes != tuple(file.size_bytes for file in wanted):
        return False
    return weight_hashes(source) == tuple(file.sha256 for file in wanted)


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, of: progress(before + done, total)
