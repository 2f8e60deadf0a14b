"""A context as the prompt of a chat model: the persona, then the turns, in the model's own template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranker.errors import ConfigError, MismatchError
from ranker.types import Context, clean_text

PERSONA = "You are a caring friend who listens and replies briefly."
_CHARACTERS_PER_TOKEN = 32
"""Of a turn, only this many characters for each token are tokenised, so that a huge one costs no more than a
long one."""
_LONGEST_PERSONA = 2000


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """How a context becomes a prompt; the same in training and in use."""

    turns: int = 4
    """The newest of a context."""
    context_tokens: int = 96
    """Of the text of the turns: the oldest are left out, and the beginning of a lone turn."""
    persona: str = PERSONA

    def __post_init__(self) -> None:
        if self.turns < 1 or self.context_tokens < 1:
            raise ConfigError("turns and context_tokens must be at least 1")
        if len(self.persona) > _LONGEST_PERSONA:
            raise ConfigError(f"the persona has more than {_LONGEST_PERSONA:,} characters")


class ChatPrompt:
    """Makes prompts with a model's tokenizer and template.

    Special tokens written out in a text are taken out: a user who types "<|im_end|>" ends no turn.
    """

    def __init__(self, tokenizer: Any, settings: PromptSettings) -> None:
        """`tokenizer` is one of transformers. Raises MismatchError where it has no template or no end."""
        if not tokenizer.chat_template:
            raise MismatchError("the base model has no chat template", fix="Take an instruction-tuned model")
        if tokenizer.eos_token_id is None:
            raise MismatchError("the tokenizer of the base model has no end token")
        self._tokenizer, self.settings = tokenizer, settings
        self._special = re.compile("|".join(map(re.escape, _special_tokens(tokenizer))))
        self.end: int = tokenizer.eos_token_id
        """Ends a reply."""

    def prompt(self, context: Context) -> list[int]:
        """Token ids up to where the reply begins."""
        return self.conversation(self._fitted(context.turns[-self.settings.turns :]))

    def conversation(self, turns: Sequence[str]) -> list[int]:
        """The prompt after all of `turns`, the last of which is the user's."""
        messages = [{"role": "system", "content": self._plain(self.settings.persona)}]
        for place, turn in enumerate(turns):
            is_user = (len(turns) - place) % 2 == 1
            messages.append({"role": "user" if is_user else "assistant", "content": self._plain(turn)})
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # whatever a template raises
            raise MismatchError(f"the base model's chat template refuses a conversation ({error})") from error
        return self._ids(str(text))

    def reply(self, text: str) -> list[int]:
        """Token ids of a reply, without its end."""
        return self._ids(self._plain(clean_text(text)))

    def text(self, ids: Sequence[int]) -> str:
        """What the ids of a reply say; the last character may not be whole yet."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def ends(self) -> frozenset[int]:
        """What ends a reply when a model writes it: the end token, or a new line."""
        lines = (self._ids(text) for text in ("\n", "\n\n"))
        return frozenset({self.end, *(ids[0] for ids in lines if len(ids) == 1)})

    def _fitted(self, turns: Sequence[str]) -> list[str]:
        """The newest turns that fit, at least the last one, whose end is kept."""
        limit = self.settings.context_tokens
        kept: list[str] = []
        left = limit
        for turn in reversed(turns):
            short = turn[-limit * _CHARACTERS_PER_TOKEN :]
            ids = self.reply(short)
            if len(ids) > left or len(short) < len(turn):
                if not kept:
                    kept = [self.text(ids[-limit:])]
                break
            kept.insert(0, turn)
            left -= len(ids)
        return kept

    def _plain(self, text: str) -> str:
        return clean_text(self._special.sub(" ", text))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a transformers folder, from its files alone. Raises MismatchError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of many kinds, the native parser's among them
        reason = str(error).partition("\n")[0]
        raise MismatchError(f"the tokenizer in {folder} cannot be used ({reason})") from error


def _special_tokens(tokenizer: Any) -> list[str]:
    added = {str(token) for token in tokenizer.get_added_vocab()}
    return sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
