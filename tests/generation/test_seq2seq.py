"""The generator `seq2seq` with a tiny random network: the rules of decoding and likelihoods hold anyway."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ranker.corpora import Pair
from ranker.errors import GenerationError, IntegrityError
from ranker.generation import GenerationSettings, LocalGenerator, installed, load_generator
from ranker.generation.folder import GeneratorFolder, Manifest, write_generator
from ranker.generation.seq2seq import Seq2SeqShape
from ranker.home import Home
from ranker.storage import write_json
from ranker.types import Context, Provenance

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS += ["so", "sad", "happy", "i", "am", "you", "are", "glad", "to", "hear", "it", ".", "!", "?"]
CONTEXT = Context(("I am so sad.", "You are?"))
QUICK = GenerationSettings(beams=4, groups=2, max_tokens=8)


def tokenizer_json() -> bytes:
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return str(made.to_str()).encode()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """With a random network of two layers, loud enough to have opinions."""
    from ranker.generation.seq2seq_model import Seq2Seq

    torch.manual_seed(3)
    shape = Seq2SeqShape(len(WORDS), layers=2, heads=2, width=16, feed_forward=32, context_tokens=12)
    model = Seq2Seq(shape, pad=0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad and weight.dim() == 2:
                weight.normal_(std=0.4)

    def fill(folder: Path) -> None:
        write_json(folder / "settings.json", asdict(shape))
        (folder / "tokenizer.json").write_bytes(tokenizer_json())
        model.save(str(folder / "weights.safetensors"))

    home = Home(tmp_path_factory.mktemp("home"))
    write_generator(home.generators / "seq2seq", Manifest("seq2seq", "random", "MIT"), fill)
    return home


def pair(response: str, context: Context = CONTEXT) -> Pair:
    return Pair(context, response, (), Provenance("toy", "1", 2))


def local(home: Home, settings: GenerationSettings = QUICK) -> LocalGenerator:
    made = load_generator("seq2seq", home, settings)
    assert isinstance(made, LocalGenerator)
    return made


def test_it_is_installed_and_lazy(home: Home) -> None:
    assert "seq2seq" in installed(home)
    made = local(home)
    assert made.name == "seq2seq"
    assert vars(made)["_loaded"] is None
    made.load()
    assert vars(made)["_loaded"] is not None
    assert made.tokenizer_name == f"words, {len(WORDS)}"


@pytest.mark.parametrize("decoding", ["beam", "sample"])
def test_a_reply_and_its_stream(home: Home, decoding: Literal["beam", "sample"]) -> None:
    settings = replace(QUICK, decoding=decoding, repeat_ngram=1)
    made = local(home, settings)
    reply = made.reply(CONTEXT)
    assert reply.source == "generated"
    assert reply.details["stopped"] in ("end", "length")
    pieces = list(made.stream(CONTEXT))
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    words = re.findall(r"\w+|[.!?]", reply.text.lower())
    assert len(words) == len(set(words)) <= 8, "no word twice"
    assert not any(special in reply.text.upper() for special in WORDS[:4])
    assert made.reply(CONTEXT).text == reply.text, "the same seed, the same reply"


def test_the_cache_changes_nothing(home: Home) -> None:
    """Step by step with rows that fork and merge, the probabilities are those of whole replies."""
    from ranker.generation.seq2seq_model import Continuation

    made = local(home)
    made.load()
    model = vars(made)["_loaded"].model
    context = [4, 5, 6, 3, 7]
    step = Continuation(model, context)
    step([0], [2])
    step([0, 0, 0], [4, 5, 6])
    step([2, 0], [7, 8])
    found = step([1, 1, 0], [9, 10, 11])
    for row, tokens in enumerate(([2, 4, 8, 9], [2, 4, 8, 10], [2, 6, 7, 11])):
        with torch.inference_mode():
            hidden = model.core(
                input_ids=torch.tensor([context]), decoder_input_ids=torch.tensor([tokens])
            ).last_hidden_state[0, -1]
            expected = (model.embeddings @ hidden).log_softmax(-1)
        np.testing.assert_allclose(found[row], expected.numpy(), atol=1e-5)


def test_loglikelihood_is_the_sum_over_tokens(home: Home) -> None:
    """Batched and padded, it is what the steps of decoding say, one by one."""
    from ranker.generation.seq2seq_model import Continuation

    made = local(home)
    made.load()
    loaded = vars(made)["_loaded"]
    rows = [pair("So glad!"), pair("I am."), pair("You are happy to hear it.", Context(("So?",)))]
    found = made.loglikelihood(rows)
    assert [tokens for _, tokens in found] == [4, 4, 8]
    for row, (total, _) in zip(rows, found, strict=True):
        ids = loaded.vocabulary.context_ids(row.context, turns=4, tokens=12)
        step = Continuation(loaded.model, ids)
        last, expected = 2, 0.0
        for token in [*loaded.vocabulary.reply_ids(row.response), 3]:
            expected += float(step([0], [last])[0, token])
            last = token
        assert total == pytest.approx(expected, abs=1e-4)
    assert made.loglikelihood([]) == []


def test_all_short_replies_sum_to_less_than_one(home: Home) -> None:
    ids = [word for word in WORDS[4:] if word.isalpha()]
    total = sum(math.exp(one) for one, _ in local(home).loglikelihood([pair(word) for word in ids]))
    assert 0 < total < 1


def test_a_reply_that_is_late_is_an_error(home: Home) -> None:
    with pytest.raises(GenerationError, match="no reply within"):
        local(home, replace(QUICK, max_seconds=1e-6)).reply(CONTEXT)
    with pytest.raises(GenerationError, match="no reply within"):
        list(local(home, replace(QUICK, max_seconds=1e-6, decoding="sample")).stream(CONTEXT))


def test_a_huge_context(home: Home) -> None:
    huge = Context(("so sad " * 300_000,) * 6)
    assert local(home).reply(huge).text


def copy_of(home: Home, root: Path, changed: dict[str, bytes], *, stamped: bool) -> None:
    """The generator with some files changed, before (`stamped`) or after its manifest is made."""
    source = GeneratorFolder.open(home.generators / "seq2seq", "seq2seq")
    files = {stamp.name: source.read(stamp.name) for stamp in source.manifest.files}

    def fill(folder: Path) -> None:
        for name, data in (files | (changed if stamped else {})).items():
            (folder / name).write_bytes(data)

    made = write_generator(root, Manifest("seq2seq", "", ""), fill)
    if not stamped:
        for name, data in changed.items():
            (made.path / name).write_bytes(data)


@pytest.mark.parametrize("name", ["weights.safetensors", "tokenizer.json", "settings.json"])
@pytest.mark.parametrize("stamped", [False, True])
def test_damaged_files(home: Home, tmp_path: Path, name: str, stamped: bool) -> None:
    copy_of(home, tmp_path / "bad", {name: b'{"a": 1}'}, stamped=stamped)
    with pytest.raises(IntegrityError, match=name):
        load_generator(tmp_path / "bad", home).reply(CONTEXT)


def test_a_flipped_bit(home: Home, tmp_path: Path) -> None:
    source = GeneratorFolder.open(home.generators / "seq2seq", "seq2seq")
    data = bytearray(source.read("weights.safetensors"))
    data[-1] ^= 1
    copy_of(home, tmp_path / "bad", {"weights.safetensors": bytes(data)}, stamped=False)
    with pytest.raises(IntegrityError, match="sha256"):
        load_generator(tmp_path / "bad", home).reply(CONTEXT)


def test_weights_of_another_shape(home: Home, tmp_path: Path) -> None:
    shape = b'{"vocabulary": 18, "layers": 1, "heads": 2, "width": 16, "feed_forward": 32}'
    copy_of(home, tmp_path / "bad", {"settings.json": shape}, stamped=True)
    with pytest.raises(IntegrityError, match="another network"):
        load_generator(tmp_path / "bad", home).reply(CONTEXT)
