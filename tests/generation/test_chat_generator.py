"""The generator `chat` on a tiny random model: loading, answering, scoring, and folders that are wrong."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_chat
import torch
from transformers import LlamaForCausalLM

from ranker.corpora import Pair
from ranker.errors import GenerationError, IntegrityError, MismatchError, NotFoundError
from ranker.generation import GenerationSettings, LocalGenerator, load_generator
from ranker.generation.chat import ChatGenerator
from ranker.generation.chat_adapter import LORA_A, LORA_B
from ranker.generation.chat_base import import_base
from ranker.generation.chat_model import ChatModel, Continuation, Row, packed
from ranker.home import Home
from ranker.types import Context, Provenance, Reranker

CONTEXT = Context((tiny_chat.LINES[0],))


@pytest.fixture(autouse=True)
def _in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are compared to more digits than bf16 has."""
    monkeypatch.setattr("ranker.generation.chat_model.best_dtype", lambda: torch.float32)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.write_base(tmp_path_factory.mktemp("base") / "tiny", taught=True)


@pytest.fixture
def home(tmp_path: Path, base: Path) -> Home:
    """With a base and an adapter."""
    made = Home(tmp_path / "home")
    import_base(base, made)
    tiny_chat.write_adapter(made.generators / "chat", base)
    return made


def chat(home: Home, **changes: object) -> ChatGenerator:
    made = load_generator("chat", home, GenerationSettings(**changes))  # type: ignore[arg-type] # of the test
    assert isinstance(made, ChatGenerator)
    return made


def pair(response: str) -> Pair:
    return Pair(CONTEXT, response, (), Provenance("toy", "1", 2))


def test_it_is_what_it_promises(home: Home) -> None:
    made = chat(home)
    assert isinstance(made, LocalGenerator)
    assert isinstance(made, Reranker)
    assert made.name == "chat"
    assert made.tokenizer_name.startswith("BPE of chat, ")


def test_a_reply_is_one_clean_utterance_and_the_stream_says_the_same(home: Home) -> None:
    made = chat(home, temperature=1.5)
    reply = made.reply(CONTEXT)
    assert reply.source == "generated"
    assert reply.text == " ".join(reply.text.split()) != ""
    assert tiny_chat.END not in reply.text
    assert "".join(made.stream(CONTEXT)) == reply.text
    assert reply.details["generator"] == "chat"
    cut = chat(home, max_tokens=5).reply(CONTEXT)
    assert cut.details["stopped"] == "length"
    assert cut.text.endswith("…")
    assert tiny_chat.LINES[1].startswith(cut.text[:-1])


def test_seeds_and_beams(home: Home) -> None:
    beam = chat(home, decoding="beam").reply(CONTEXT)
    assert beam.text == tiny_chat.LINES[1]
    assert beam.details["stopped"] == "end"
    texts = [chat(home, temperature=3.0, top_p=1.0, seed=seed).reply(CONTEXT).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_the_persona_is_the_operators(home: Home) -> None:
    plain, other = chat(home, max_tokens=12), chat(home, max_tokens=12, persona="You are an afraid dog.")
    assert plain.loglikelihood([pair("That is wonderful")]) != other.loglikelihood(
        [pair("That is wonderful")]
    )


def test_a_huge_context_is_answered(home: Home) -> None:
    assert chat(home, max_tokens=20).reply(Context(("very sad " * 50_000,) * 3)).text


def test_too_little_time(home: Home) -> None:
    made = chat(home, max_seconds=1e-9)
    with pytest.raises(GenerationError, match="within"):
        made.reply(CONTEXT)


def test_the_loglikelihood_is_the_models(home: Home, base: Path) -> None:
    """Against a plain forward pass with the update added by hand."""
    made = chat(home)
    texts = ["That is wonderful news, tell me more about it.", "ok"]
    found = made.loglikelihood([pair(text) for text in texts])
    lm: Any = LlamaForCausalLM.from_pretrained(str(base), dtype=torch.float32)
    tensors = tiny_chat.tiny_updates()
    name = "model.layers.1.mlp.down_proj"
    with torch.no_grad():
        update = 0.5 * tensors[name + LORA_B].half().float() @ tensors[name + LORA_A].half().float()
        lm.get_submodule(name).weight += update
    prompt = made._need().prompt
    for text, (value, tokens) in zip(texts, found, strict=True):
        before, reply = prompt.prompt(CONTEXT), [*prompt.reply(text), prompt.end]
        with torch.no_grad():
            logits = lm(torch.tensor([before + reply])).logits[0].log_softmax(-1)
        each = [float(logits[len(before) - 1 + place, token]) for place, token in enumerate(reply)]
        assert tokens == len(reply)
        assert value == pytest.approx(math.fsum(each), rel=1e-4)


def test_scores_do_not_depend_on_the_other_texts(home: Home) -> None:
    made = chat(home)
    texts = ["That sounds scary, what did you do?", "ok", "I am so sorry to hear that" * 8]
    together = made.score(CONTEXT, texts)
    alone = np.concatenate([made.score(CONTEXT, [text]) for text in texts])
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert len(set(together.tolist())) == 3
    assert made.score(CONTEXT, []).shape == (0,)
    many = made.score(CONTEXT, texts * 12)
    np.testing.assert_allclose(many[-3:], together, rtol=1e-4, atol=1e-5)


def test_emotions(home: Home) -> None:
    made = chat(home)
    contexts = [CONTEXT, Context(("My dog died last night and I am very sad.", "Oh no.", "Yes."))]
    found = made.emotions(contexts)
    for labels, alone in zip(found, [made.emotions([context])[0] for context in contexts], strict=True):
        assert [label.name for label in labels] == [label.name for label in alone]
        assert labels[0].probability == pytest.approx(alone[0].probability, rel=1e-3)
        assert {label.name for label in labels} == set(tiny_chat.EMOTIONS)
        assert sum(label.probability for label in labels) == pytest.approx(1, abs=1e-5)
        assert [label.probability for label in labels] == sorted(
            (label.probability for label in labels), reverse=True
        )


def test_threads_may_share_it(home: Home) -> None:
    made = chat(home, max_tokens=8)
    wanted, found = made.reply(CONTEXT).text, []
    threads = [threading.Thread(target=lambda: found.append(made.reply(CONTEXT).text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    abandoned = made.stream(CONTEXT)
    next(abandoned)  # must not keep the others waiting
    for thread in threads:
        thread.join(30)
    assert found == [wanted] * 4


def test_steps_with_a_cache_are_steps_without(base: Path) -> None:
    lm: Any = LlamaForCausalLM.from_pretrained(str(base), dtype=torch.float32)
    model = ChatModel(lm, emotions=3)
    prompt = [5, 9, 14, 3, 20]
    step = Continuation(model, prompt)
    first = step([0], [prompt[-1]])
    step([0, 0], [7, 8])
    found = step([1, 0, 1], [30, 31, 32])
    rows = [[8, 30], [7, 31], [8, 32]]
    with torch.no_grad():
        wanted = [lm(torch.tensor([prompt + row])).logits[0, -1].log_softmax(-1).numpy() for row in rows]
        start = lm(torch.tensor([prompt])).logits[0, -1].log_softmax(-1).numpy()
    np.testing.assert_allclose(first[0], start, atol=1e-4)
    np.testing.assert_allclose(found, np.stack(wanted), atol=1e-4)


def test_what_sees_what() -> None:
    batch = packed([Row([1, 2, 3], [[4, 5], [6]], fork=2), Row([7])])
    assert batch["ids"].tolist() == [[1, 2, 3, 4, 5, 6], [7, 0, 0, 0, 0, 0]]
    assert batch["positions"].tolist()[0] == [0, 1, 2, 2, 3, 2]
    seen = batch["mask"][0, 0].int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
    assert batch["mask"][1, 0].any(dim=-1).all()  # a row that sees nothing would be no number


def test_without_a_base(tmp_path: Path, base: Path) -> None:
    home = Home(tmp_path / "home")
    tiny_chat.write_adapter(home.generators / "chat", base)
    with pytest.raises(
        NotFoundError, match=r"ranker fetch generator:chat.*ranker import generator:chat FOLDER"
    ):
        load_generator("chat", home)


def test_a_base_of_another_size(home: Home, tmp_path: Path) -> None:
    import_base(tiny_chat.write_base(tmp_path / "large", layers=3, width=48), home)
    with pytest.raises(
        MismatchError, match=r"3 layers of 48.*but the adapter is for llama, 2 layers of 32"
    ) as caught:
        load_generator("chat", home)
    assert "\n" not in str(caught.value)


def test_updates_that_do_not_fit(home: Home, base: Path) -> None:
    wrong = {name.replace("layers.1", "layers.5"): value for name, value in tiny_chat.tiny_updates().items()}
    tiny_chat.write_adapter(home.generators / "chat", base, tensors=wrong)
    with pytest.raises(MismatchError, match=r"no model\.layers\.5"):
        chat(home).load()
    wrong = tiny_chat.tiny_updates()
    wrong["emotion.weight"] = torch.zeros(2, 32)
    tiny_chat.write_adapter(home.generators / "chat", base, tensors=wrong)
    with pytest.raises(IntegrityError, match="emotion head"):
        chat(home).load()


def test_a_missing_head(home: Home, base: Path) -> None:
    tensors = tiny_chat.tiny_updates()
    del tensors["selection.bias"]
    tiny_chat.write_adapter(home.generators / "chat", base, tensors=tensors)
    with pytest.raises(IntegrityError, match=r"lacks selection\.bias"):
        chat(home).load()


@pytest.mark.parametrize(
    ("root", "file"),
    [("chat", "adapter.safetensors"), ("chat", "adapter.json"), ("chat-base", "model.safetensors")],
)
def test_a_flipped_byte(home: Home, root: str, file: str) -> None:
    (path,) = (home.generators / root).glob(f"v-*/{file}")
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="does not match its sha256"):
        chat(home).load()


def test_a_truncated_adapter(home: Home) -> None:
    (path,) = (home.generators / "chat").glob("v-*/adapter.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(IntegrityError, match="bytes, not"):
        chat(home).load()
