"""A tiny random chat model as a transformers folder, and adapters for it: the real classes, toy sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ranker.generation.chat_adapter import LORA_A, LORA_B, WEIGHTS, AdapterCard
from ranker.generation.chat_base import shape_of, weight_hashes
from ranker.generation.chat_prompt import ChatPrompt, PromptSettings
from ranker.generation.folder import GeneratorFolder, Manifest, write_generator
from ranker.types import Context

PERSONA = "You are a caring friend."
START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EMOTIONS = ("joyful", "sad", "afraid")
LINES = [
    "I feel so happy today, we won the game!",
    "That is wonderful news, tell me more about it.",
    "My dog died last night and I am very sad.",
    "I am so sorry to hear that, how are you now?",
    "There was a strange noise in the house and I was afraid.",
    "That sounds scary, what did you do?",
    "system user assistant You are a caring friend.",
]


def tiny_tokenizer(lines: list[str] | None = None) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((lines or LINES) * 3, trainer)
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # it has no annotations
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=END, unk_token="<|endoftext|>"
    )
    made.chat_template = TEMPLATE
    return made


def write_base(
    folder: Path,
    *,
    layers: int = 2,
    width: int = 32,
    seed: int = 0,
    lines: list[str] | None = None,
    taught: bool = False,
) -> Path:
    """A transformers folder, as `ranker import generator:chat` takes it; `taught` to answer a line of LINES
    with the next one."""
    tokenizer = tiny_tokenizer(lines)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,  # tied and frozen: smaller ones could not tell the tokens apart
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    if taught:
        _teach(model, tokenizer)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def _teach(model: Any, tokenizer: Any) -> None:
    prompt = ChatPrompt(tokenizer, PromptSettings(context_tokens=48, persona=PERSONA))
    rows = []
    for said, reply in zip(LINES[:6:2], LINES[1:6:2], strict=True):
        before, after = prompt.prompt(Context((said,))), [*prompt.reply(reply), prompt.end]
        rows.append((torch.tensor([before + after]), torch.tensor([[-100] * len(before) + after])))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        for ids, labels in rows:
            model(input_ids=ids, labels=labels).loss.backward()
            optimiser.step()
            optimiser.zero_grad()


def tiny_updates(width: int = 32, rank: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    name = "model.layers.1.mlp.down_proj"
    return {
        name + LORA_A: 0.1 * torch.randn(rank, 2 * width, generator=generator),
        name + LORA_B: 0.1 * torch.randn(width, rank, generator=generator),
        "selection.weight": torch.randn(1, width, generator=generator),
        "selection.bias": torch.zeros(1),
        "emotion.weight": torch.randn(len(EMOTIONS), width, generator=generator),
        "emotion.bias": torch.zeros(len(EMOTIONS)),
    }


def write_adapter(
    root: Path, base: Path, *, tensors: Mapping[str, torch.Tensor] | None = None, scale: float = 0.5
) -> GeneratorFolder:
    """A generator's folder with an adapter for the base."""
    card = AdapterCard(
        base="tiny/chat",
        shape=shape_of(base),
        base_sha256=weight_hashes(base),
        scale=scale,
        prompt=PromptSettings(context_tokens=48, persona=PERSONA),
        emotions=EMOTIONS,
    )

    def fill(folder: Path) -> None:
        halves = {name: value.half() for name, value in (tensors or tiny_updates()).items()}
        save_file(halves, str(folder / WEIGHTS))
        card.save(folder)

    return write_generator(root, Manifest(kind="chat", origin="a test", licence="CC0-1.0"), fill)
