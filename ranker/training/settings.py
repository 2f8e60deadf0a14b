"""What a training run is: a model and up to three stages, each a TOML table of a preset.

    [model]     what is trained
    [pretrain]  on broad conversation (Reddit, chit-chat, DailyDialog)
    [finetune]  on the corpus that the model is for
    [distill]   towards the scores of a stronger encoder

A stage starts from the result of the one before it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ranker.config import from_table, read_toml
from ranker.errors import ConfigError, NotFoundError
from ranker.labels import Prepend

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

Stage = Literal["pretrain", "finetune", "distill"]
Precision = Literal["auto", "bf16", "fp32"]
"""auto: bf16 where the processor computes in it."""
STAGES: tuple[Stage, ...] = ("pretrain", "finetune", "distill")
PRESETS = Path(__file__).resolve().parent.parent / "presets"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The encoder to train."""

    architecture: Literal["pretrained", "transformer"] = "pretrained"
    """A BERT-family model with its weights, or the paper's Transformer from scratch."""
    base: str = ""
    """Folder or hub id of the pretrained model."""
    towers: Literal["shared", "separate"] = "shared"
    """One set of weights for contexts and candidates, or one each."""
    heads: Literal["none", "separate"] = "none"
    """A linear layer per side after pooling; it starts as the identity."""
    pooling: Literal["mean", "cls"] = "mean"
    dropout: float = 0.0
    frozen_embeddings: bool = True
    """Leave the word and position embeddings as they are: their dense gradient costs a tenth of a step."""
    frozen_layers: int = 0
    lora_rank: int = 0
    """0: all weights are tuned. Otherwise only low-rank updates of this rank."""
    lora_alpha: int = 0
    """0: twice the rank."""
    max_tokens: int = 100
    """Of a context (the newest are kept) and of a candidate (the first)."""
    prepend: str | None = None
    """`kind:k`, such as "emotion:1": that many predicted labels before each text, beyond max_tokens."""
    layers: int = 4
    heads_per_layer: int = 6
    width: int = 300
    feed_forward: int = 1200
    vocabulary: int = 50_000
    vectors: str = ""
    """Pretrained word vectors for the Transformer: a text file, or a folder with vocab.txt and one .npy."""

    def __post_init__(self) -> None:
        if self.architecture == "pretrained" and not self.base:
            raise ConfigError("[model] has no base", fix="Name a folder or hub id: base = ... or --base")
        if self.lora_rank and self.architecture == "transformer":
            raise ConfigError("[model] lora_rank is for pretrained models", fix="Set lora_rank = 0")
        if self.width % self.heads_per_layer:
            raise ConfigError(f"[model] width {self.width} is not a multiple of heads_per_layer")
        if self.prepend is not None:
            Prepend.parse(self.prepend)

    @property
    def longest(self) -> int:
        """Tokens of the longest input: the text's and the prepended labels'."""
        return self.max_tokens + (Prepend.parse(self.prepend).k if self.prepend else 0)

    @property
    def is_one_tower(self) -> bool:
        """Contexts and candidates take the same way."""
        return self.towers == "shared" and self.heads == "none"


@dataclass(frozen=True, slots=True)
class StageSettings:
    """One pass of training: which pairs, which objective, how long."""

    corpora: tuple[str, ...] = ("ed",)
    listener_only: bool = False
    """Only the listener's replies as targets, not both speakers'."""
    pairs: int = 0
    """Train on this many pairs, drawn at random; 0: all."""
    min_words: int = 1
    max_words: int = 100
    """Pairs whose response is shorter or longer are left out."""
    profane: Literal["keep", "drop"] = "keep"
    """Whether pairs with a profane response are trained on."""
    epochs: float = 1.0
    batch_size: int = 256
    micro_batch: int = 32
    """Pairs embedded at a time; the gradient cache makes the rest of the batch fit in memory."""
    gradient_cache: bool = True
    """False: a quarter faster, with the whole batch's activations in memory at once."""
    learning_rate: float = 5e-5
    warmup: float = 0.1
    """Share of the steps."""
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = 0.01
    scale: float = 25.0
    """Factor of the cosines before the softmax."""
    scale_learning_rate: float = 0.0
    """0: the scale is fixed."""
    both_directions: bool = True
    """Also find the context of each response."""
    hard_negatives: int = 0
    """Candidates mined with the model that the stage starts from, added for each pair."""
    negative_margin: float = 0.05
    """A mined candidate must score this share below the true response, or it may be a good reply too."""
    teachers: tuple[str, ...] = ()
    """Encoders whose mean scores are imitated: other runs by name, or encoders by name or folder."""
    teacher_scale: float = 25.0
    label_weight: float = 0.3
    """Weight of the true response's cross-entropy beside the teacher's scores."""
    eval_steps: int = 50
    patience: int = 0
    """Stop after so many evaluations without a better one; 0: never."""
    save_minutes: float = 4.0
    """A restart loses at most this much."""
    precision: Precision = "auto"
    feedback_repeats: int = 3
    """How often each pair of feedback stands among the pairs, where feedback is given."""
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("epochs", "batch_size", "micro_batch", "learning_rate", "scale", "eval_steps")
        for name in (*positive, "feedback_repeats"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.batch_size < 2:
            raise ConfigError("batch_size must be 2 or more: the other responses are the negatives")
        if self.hard_negatives and self.teachers:
            raise ConfigError("a stage has hard_negatives or teachers, not both")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A preset with every override applied."""

    model: ModelSettings
    pretrain: StageSettings | None = None
    finetune: StageSettings | None = None
    distill: StageSettings | None = None

    def stages(self, only: Sequence[str] = ()) -> dict[Stage, StageSettings]:
        """The stages to run, in order. `only` picks some of them; raises NotFoundError for one not set,
        ConfigError for a stage that cannot run."""
        found = {name: table for name in STAGES if (table := getattr(self, name)) is not None}
        for name in only:
            if name not in found:
                raise NotFoundError.of("stage", name, found)
        if "distill" in found and not found["distill"].teachers and (not only or "distill" in only):
            raise ConfigError("[distill] has no teachers", fix="Name an encoder: --teacher FOLDER")
        return {name: table for name, table in found.items() if not only or name in only}


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_recipe(preset: str, overrides: Sequence[str] = ()) -> Recipe:
    """A preset's name or a TOML file's path, with `table.key=value` overrides (values as TOML writes them).

    Raises NotFoundError for an unknown preset, ConfigError for an unknown key or a wrong value.
    """
    path = Path(preset) if preset.endswith(".toml") else PRESETS / f"{preset}.toml"
    if not path.is_file():
        raise NotFoundError.of("preset", preset, preset_names())
    tables = read_toml(path)
    for override in overrides:
        apply_override(tables, override)
    for table in tables:
        if table not in ("model", *STAGES):
            raise ConfigError(
                f"unknown table [{table}] in {path.name}", fix=f"Known: model, {', '.join(STAGES)}"
            )
    stages = {
        stage: from_table(StageSettings, tables[stage], source=f"[{stage}] of {path.name}")
        for stage in STAGES
        if stage in tables
    }
    model = from_table(ModelSettings, tables.get("model", {}), source=f"[model] of {path.name}")
    return Recipe(model, **stages)


def apply_override(tables: dict[str, Any], override: str) -> None:
    """Put `table.key=value`, its value as TOML writes it or plain text, into a preset's tables."""
    name, equals, text = override.partition("=")
    table, dot, key = name.strip().partition(".")
    if not (equals and dot):
        raise ConfigError(f"{override!r} is not of the form table.key=value")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    section = tables.setdefault(table, {})
    if not isinstance(section, Mapping):
        raise ConfigError(f"{table!r} is not a table of the preset")
    tables[table] = {**section, key: value}
