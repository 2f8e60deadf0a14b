"""`ranker train --feedback`: what people edited is learnt, and what they reported does not come back."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from ranker.bundle import PoolNote, write_bundle
from ranker.cli import app
from ranker.corpora import Pair
from ranker.encoders import HashingEncoder, load_encoder
from ranker.engine import Ranker
from ranker.errors import ConfigError, CorpusError, NotFoundError, TrainingError
from ranker.feedback import FEEDBACK_FILE, FeedbackStore
from ranker.home import Home
from ranker.training.data import feedback_pairs, pairs_hash, with_feedback
from ranker.training.settings import StageSettings
from ranker.types import Candidate, Context

torch.set_num_threads(1)

EDITS = {
    "We looked at the zebra all day.": "Was the piano more than you had hoped?",
    "There was a kitten near our road.": "Was the ocean as the doctor had hoped?",
    "We looked at the ladder all day.": "Tell me as you do, was the ocean that cake?",
}
"""What no other pair teaches: the replies are about something else than the contexts."""


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Path:
    """A tiny random BERT whose vocabulary is the words in their order. A vocabulary that is trained comes out
    otherwise in each process, and with it what the model learns."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    texts = [text for pair in pairs for text in (*pair.context.turns, pair.response)]
    texts += [text for edit in EDITS.items() for text in edit]
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = {word: number for number, word in enumerate([*special.values(), "[MASK]", *words])}
    folder = tmp_path_factory.mktemp("fixed-base")
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # it has no annotations
        tokenizer_object=BertWordPieceTokenizer(vocab=vocabulary, lowercase=True)._tokenizer, **special
    ).save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, pairs: list[Pair]) -> Home:
    """With an index of the toy replies."""
    made = Home(tmp_path / "home")
    encoder = HashingEncoder()
    candidates = [Candidate(f"ed:{row}", pair.response, "ed") for row, pair in enumerate(pairs)]
    write_bundle(
        made.indexes / "ed",
        name="ed",
        candidates=candidates,
        vectors=encoder.encode_candidates([candidate.text for candidate in candidates]),
        encoder_name="hashing",
        encoder_fingerprint=encoder.fingerprint,
        pools=[PoolNote("ed", "Toy", "CC0-1.0", True, is_sample=False)],
    )
    return made


@pytest.fixture
def edits(tmp_path: Path) -> Path:
    """A file as `ranker feedback export` writes it."""
    file = tmp_path / "edits.jsonl"
    rows = [{"context": [context], "response": reply} for context, reply in EDITS.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def command(tmp_path: Path, corpus: Path, base: Path) -> list[str]:
    """`ranker train` on the toy pairs, 48 steps of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "valid"):
        shutil.copy(corpus / "train.jsonl", folder / f"{split}.jsonl")
    preset = tmp_path / "toy.toml"
    preset.write_text(
        '[model]\nfrozen_embeddings = false\nmax_tokens = 32\n[finetune]\ncorpora = ["generic"]\n'
        "epochs = 16\nbatch_size = 36\nmicro_batch = 36\nlearning_rate = 3e-3\neval_steps = 24\n"
        'precision = "fp32"\n'
    )
    return [
        *("--home", str(tmp_path / "home"), "train", str(preset), "--data", f"generic={folder}"),
        *("--base", str(base), "--valid", "generic"),
    ]


def ranks_of_edits(model: str, pairs: list[Pair]) -> list[int]:
    """The rank of each edited reply for its context, among all replies."""
    encoder = load_encoder(model)
    texts = [*EDITS.values(), *(pair.response for pair in pairs)]
    candidates = encoder.encode_candidates(texts)
    contexts = encoder.encode_contexts([Context((context,)) for context in EDITS])
    scores = contexts @ candidates.T
    return [1 + int((row > row[place]).sum()) for place, row in enumerate(scores)]


def test_a_stream_of_feedback(home: Home, tmp_path: Path, command: list[str], pairs: list[Pair]) -> None:
    """People talk, report and edit; the operator applies it, exports it and trains with it."""
    ranker = Ranker.open("ed", home=home, generator=None, safety=None)
    reported = set()
    with FeedbackStore.open(home.root / FEEDBACK_FILE) as store:
        for noun in ("guitar", "island", "lemon"):
            context = f"My {noun} is on my mind tonight."
            bad = ranker.rank(context, k=1)[0].candidate
            store.report(context, bad.text, candidate_id=bad.id, pool="ed")
            reported.add(bad.text)
        for context, better in EDITS.items():
            given = ranker.rank(context, k=1)[0].candidate
            store.edit(context, given.text, better, candidate_id=given.id, pool="ed")

    where = ("--home", str(home.root))
    assert json.loads(run(*where, "feedback", "apply"))["entries"] == 6
    after = Ranker.open("ed", home=home, generator=None, safety=None)
    for pair in pairs:
        said = {place.candidate.text for place in after.rank(pair.context, k=200, keep_echoes=True)}
        assert not said & reported
        assert set(EDITS.values()) <= said

    file = tmp_path / "feedback.jsonl"
    run(*where, "feedback", "export", "--out", str(file))
    plain = json.loads(run(*command, "--name", "plain"))
    taught = json.loads(run(*command, "--name", "taught", "--feedback", str(file)))
    assert taught["pairs"] == plain["pairs"] + 3 * len(EDITS)
    before, learnt = (ranks_of_edits(result["model"], pairs) for result in (plain, taught))
    assert min(before) > 10, "else there is nothing to learn"
    assert max(learnt) <= 5, "what the toy pairs themselves reply to the context may stand before it"
    assert taught["metrics"]["p_at_1"] > plain["metrics"]["p_at_1"] - 15, "what was known stays known"


def test_the_same_feedback_gives_the_same_weights(command: list[str], edits: Path) -> None:
    short = [*command, "--set", "finetune.epochs=1", "--feedback", str(edits)]
    first, second = (json.loads(run(*short, "--name", name)) for name in ("first", "second"))
    one, other = (load_file(Path(result["model"]) / "model.safetensors") for result in (first, second))
    assert all(bool((one[name] == other[name]).all()) for name in one)
    assert json.loads(run(*short, "--name", "first")) == first, "nothing is left to do"


def test_other_feedback_is_another_run(command: list[str], edits: Path) -> None:
    short = [*command, "--name", "run", "--set", "finetune.epochs=1"]
    run(*short, "--feedback", str(edits))
    with pytest.raises(TrainingError, match="pairs_sha256"):
        run(*short)
    with pytest.raises(TrainingError, match="pairs_sha256"):
        run(*short, "--feedback", str(edits), "--set", "finetune.feedback_repeats=2")


def test_repeats_follow_the_pairs(pairs: list[Pair], stage: StageSettings, edits: Path) -> None:
    feedback = feedback_pairs(edits)
    assert [(pair.context.last, pair.response) for pair in feedback] == list(EDITS.items())
    twice = with_feedback(pairs, feedback, replace(stage, feedback_repeats=2))
    assert twice == [*pairs, *feedback, *feedback]
    assert with_feedback(pairs, feedback, replace(stage, max_words=2)) == pairs
    assert pairs_hash(twice) != pairs_hash(with_feedback(pairs, feedback, stage))
    with pytest.raises(ConfigError, match="feedback_repeats must be above 0"):
        replace(stage, feedback_repeats=0)


def test_feedback_that_cannot_be_used(tmp_path: Path, command: list[str], edits: Path) -> None:
    with pytest.raises(NotFoundError):
        run(*command, "--feedback", str(tmp_path / "nowhere.jsonl"))
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(CorpusError, match="ranker feedback export"):
        run(*command, "--feedback", str(empty))
    edits.write_text(edits.read_text() + '{"context": ["cut off')
    with pytest.raises(CorpusError, match="1 left out"):
        run(*command, "--feedback", str(edits))


def test_pretraining_alone_learns_no_feedback(command: list[str], edits: Path) -> None:
    stage = ["--set", 'pretrain.corpora=["generic"]', "--stage", "pretrain"]
    with pytest.raises(ConfigError, match="no stage that runs learns from feedback"):
        run(*command, *stage, "--feedback", str(edits))
