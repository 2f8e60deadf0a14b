"""The generator `openai`: any endpoint that speaks OpenAI's chat completions, near or far."""

from __future__ import annotations

from pathlib import Path

from ranker.config import settings as read_settings
from ranker.generation.openai.fallback import OpenAIFallback
from ranker.generation.openai.settings import TABLE, EndpointSettings
from ranker.generation.settings import GenerationSettings
from ranker.home import Home

__all__ = ["EndpointSettings", "OpenAIFallback", "load"]


def load(root: Path, settings: GenerationSettings, home: Home) -> OpenAIFallback:
    """The endpoint of the table `[openai]` of the home's ranker.toml, or of RANKER_OPENAI_<KEY>.

    `root` is not used: an endpoint has no folder. Nothing is sent yet. Raises ConfigError.
    """
    return OpenAIFallback(read_settings(EndpointSettings, TABLE, file=home.config_file), settings)
