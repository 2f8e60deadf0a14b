"""Every figure of generation by hand, and the measuring from end to end with a small generator."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

import ranker.cli.evaluate_generation as command
from ranker.cli import app
from ranker.corpora import Pair
from ranker.encoders import HashingEncoder
from ranker.errors import GenerationError, InputError
from ranker.evaluation.generation import (
    Decoded,
    Distinct,
    decode,
    distinct,
    emotion_accuracy,
    measure_generation,
    perplexity,
    reply_figures,
    similarity,
)
from ranker.evaluation.reranking import measure_reranking
from ranker.types import Context, Fallback, Label, Progress, Provenance, Reply, Vectors

pytest.importorskip("sacrebleu")


class TenSided:
    """Takes each word and the end of a reply for one of ten equally likely ones, so its perplexity is 10.

    It answers with the last turn, and takes whoever says "hooray" for joyful, everybody else for sad.
    """

    name = "ten-sided"
    tokenizer_name = "words, 10"

    def load(self) -> None:
        pass

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        if "forbidden" in context.last:
            raise GenerationError("not that")
        stopped = "length" if "long" in context.last else "end"
        return Reply(context.last, "generated", details={"stopped": stopped})

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        yield self.reply(context).text

    def loglikelihood(self, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
        counts = [len(pair.response.split()) + 1 for pair in pairs]
        return [(-math.log(10) * count, count) for count in counts]

    def emotions(self, contexts: Sequence[Context]) -> list[tuple[Label, ...]]:
        return [
            (Label("emotion", "joyful" if "hooray" in context.last else "sad", 0.9),) for context in contexts
        ]

    def score(self, context: Context, texts: Sequence[str]) -> NDArray[np.float32]:
        """How many words the text shares with the last turn."""
        words = set(context.last.split())
        return np.array([len(words & set(text.split())) for text in texts], np.float32)


class Interrupted(TenSided):
    """Someone presses Ctrl-C at the fourth reply, and at the 250th score."""

    def __init__(self) -> None:
        self.replies = self.scores = 0

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        self.replies += 1
        if self.replies == 4:
            raise KeyboardInterrupt
        return super().reply(context, hints)

    def score(self, context: Context, texts: Sequence[str]) -> NDArray[np.float32]:
        self.scores += 1
        if self.scores == 250:
            raise KeyboardInterrupt
        return super().score(context, texts)


class Endpoint:
    """A fallback that only answers, as one behind HTTP does."""

    name = "endpoint"

    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        return Reply("Tell me more.", "generated", details={"finish_reason": "length"})

    def stream(self, context: Context, hints: Sequence[str] = ()) -> Iterator[str]:
        yield "Tell me more."


class Down(Endpoint):
    def reply(self, context: Context, hints: Sequence[str] = ()) -> Reply:
        raise GenerationError("the endpoint is down")


def pair(context: str, response: str, emotion: str = "sad") -> Pair:
    return Pair(Context((context,)), response, (Label("emotion", emotion),), Provenance("toy", "1", 2))


def quietly(name: str, total: int) -> Progress:
    return lambda done, of: None


def test_perplexity_by_hand() -> None:
    # Probabilities 1/2 * 1/2 over two tokens and 1/8 * 1/16 over two: a geometric mean of 2 ** (9 / 4).
    likelihoods = [(math.log(1 / 4), 2), (math.log(1 / 128), 2)]
    found = perplexity(likelihoods, ["Hello.", "Oh dear, no!"], "letters")
    assert found.per_token == pytest.approx(2 ** (9 / 4))
    assert found.per_word == pytest.approx(2 ** (9 / 4))  # four words too: punctuation belongs to its word
    assert (found.tokens, found.words, found.rows, found.tokenizer) == (4, 4, 2, "letters")
    halved = perplexity(likelihoods, ["Hello", "Dear"], "letters")
    assert halved.per_word == pytest.approx(2 ** (9 / 2))  # the same total over half as many words


@pytest.mark.parametrize("claim", [(float("nan"), 3), (float("-inf"), 3), (0.5, 3), (-1.0, 0)])
def test_an_impossible_likelihood_is_refused(claim: tuple[float, int]) -> None:
    with pytest.raises(GenerationError, match="log probability of"):
        perplexity([claim], ["Hello."], "letters")


def test_distinct_by_hand() -> None:
    # a b a . / A b c: 7 tokens; a, b, ., c are 4 words; ab, ba, a., bc are 4 pairs, none across the replies.
    assert distinct(["a b a.", "A b c"]) == Distinct(4 / 7, 4 / 7)
    assert distinct(["so so so so"]) == Distinct(1 / 4, 1 / 4)
    assert distinct([""]) == Distinct(0.0, 0.0)


DIRECTIONS = {"north": (0.0, 1.0), "east": (1.0, 0.0), "northeast": (0.5**0.5, 0.5**0.5)}


class Compass:
    """Encodes candidates as the directions that they name."""

    dim = 2
    fingerprint = "compass"
    calibration = None

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        raise AssertionError("replies are compared as candidates")

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        return np.array([DIRECTIONS[text] for text in texts], np.float32)


def test_similarity_by_hand() -> None:
    replies, golds = ["north", "north", "north"], ["north", "east", "northeast"]
    assert similarity(Compass(), replies, golds) == pytest.approx((1 + 0 + math.sqrt(0.5)) / 3)


def test_emotion_accuracy_by_hand() -> None:
    predicted = [
        (Label("emotion", "sad", 0.6), Label("emotion", "angry", 0.3)),
        (Label("emotion", "sad", 0.6), Label("emotion", "angry", 0.3)),
        (),
    ]
    assert emotion_accuracy(predicted, ["sad", "angry", "sad"]).accuracy == pytest.approx(100 / 3)
    with pytest.raises(InputError):
        emotion_accuracy([], [])


def test_figures_of_replies_by_hand() -> None:
    decoded = [
        Decoded("north", 1.0, "end"),
        Decoded("east", 2.0, "length"),
        Decoded("east", 3.0, "time"),
        Decoded("", 9.0, "refused"),
    ]
    found = reply_figures(decoded, ["north", "north", "east", "north"], Compass())
    assert (found.rows, found.words) == (4, 1.0)
    assert (found.limited, found.refused) == (50.0, 25.0)
    assert found.similarity == pytest.approx(2 / 3)
    assert found.distinct == Distinct(2 / 3, 0.0)
    assert found.bleu.orders[0] == pytest.approx(100 * 2 / 3)
    assert found.seconds_p50 == 2.0
    assert found.seconds_p99 == pytest.approx(2.98)  # 98 % of the way from the second of three to the third
    with pytest.raises(InputError, match="not one reply"):
        reply_figures(decoded[3:], ["north"], Compass())


def test_why_replies_end() -> None:
    contexts = [Context((text,)) for text in ("short", "a long one", "a forbidden one")]
    assert [reply.ending for reply in decode(TenSided(), contexts)] == ["end", "length", "refused"]
    assert [reply.ending for reply in decode(Endpoint(), contexts[:1])] == ["length"]


def test_a_generator_that_is_down_is_given_up() -> None:
    replies = decode(Down(), [Context(("hello",))] * 50)
    assert [next(replies).ending for _ in range(9)] == ["refused"] * 9
    with pytest.raises(GenerationError, match="down"):
        next(replies)


def test_all_figures_of_a_small_generator() -> None:
    pairs = [pair(f"hooray number {row}", f"hooray number {row}", "joyful") for row in range(6)]
    pairs += [pair(f"hooray again {row}", "that is too bad", "sad") for row in range(2)]
    found = measure_generation(TenSided(), HashingEncoder(), pairs, decoded=100, step=quietly)
    assert found.perplexity is not None
    assert found.perplexity.per_token == pytest.approx(10)
    assert found.perplexity.per_word == pytest.approx(10 ** (34 / 26))  # 6 * 3 + 2 * 4 words, 8 ends
    assert found.emotion is not None
    assert (found.emotion.accuracy, found.emotion.rows) == (75.0, 8)
    assert found.replies is not None
    assert (found.replies.rows, found.replies.words, found.replies.refused) == (8, 3.0, 0.0)
    assert not found.interrupted
    assert "NaN" not in json.dumps(found.to_dict())


def test_what_a_generator_cannot_do_stays_blank() -> None:
    found = measure_generation(Endpoint(), HashingEncoder(), [pair("a", "b")], decoded=1, step=quietly)
    assert found.perplexity is None
    assert found.emotion is None
    assert found.replies is not None
    assert found.replies.limited == 100.0


def test_an_interruption_keeps_what_is_known() -> None:
    pairs = [pair(f"row {row}", f"reply {row}") for row in range(200)]
    found = measure_generation(Interrupted(), HashingEncoder(), pairs, decoded=50, step=quietly)
    assert found.interrupted
    assert found.perplexity is not None
    assert found.perplexity.rows == 200
    assert found.replies is not None
    assert found.replies.rows == 3


def rerank_pairs() -> list[Pair]:
    """Responses that share one rare word with their context, and a common one with all contexts."""
    return [pair(f"topic{row} again", f"about topic{row} again") for row in range(200)]


class Constant:
    def score(self, context: Context, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.zeros(len(texts), np.float32)


class Blurred:
    """An encoder whose best candidate of three is never the true one: row r leans to r, more so to r + 1."""

    dim = 200
    fingerprint = "blurred"
    calibration = None

    def encode_contexts(self, contexts: Sequence[Context], progress: Progress | None = None) -> Vectors:
        vectors = np.zeros((len(contexts), self.dim), np.float32)
        for place, context in enumerate(contexts):
            row = int(context.last.split()[0].removeprefix("topic"))
            vectors[place, row], vectors[place, (row + 1) % self.dim] = 0.6, 0.8
        return vectors

    def encode_candidates(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for place, text in enumerate(texts):
            vectors[place, int(text.split()[1].removeprefix("topic"))] = 1.0
        return vectors


def test_reranking_by_hand() -> None:
    """The true response is second where its rival is in the group too, and first otherwise."""
    pairs = rerank_pairs()[:100]
    found = measure_reranking(TenSided(), Blurred(), pairs, rows=100)
    assert found.before.p_at_1.mean == 1.0, "only the last row's rival is not there"
    assert found.before.p_at_3.mean == 100.0
    assert found.after.p_at_1.mean == 100.0
    assert (found.won, found.lost) == (99, 0)
    constant = measure_reranking(Constant(), Blurred(), pairs, rows=100)
    assert constant.after.p_at_1.mean == 0.0, "a tie loses"
    assert constant.after.mean_rank.mean == 10.0
    assert (constant.won, constant.lost) == (0, 1)


def test_reranking_leaves_the_places_below_alone() -> None:
    found = measure_reranking(TenSided(), Blurred(), rerank_pairs(), rows=200, top=1)
    assert found.after == found.before


def test_equal_texts_count_as_correct_when_reranked() -> None:
    pairs = [pair("topic1 again", "about topic1 again")] * 100
    assert measure_reranking(Constant(), Blurred(), pairs, rows=100).after.p_at_1.mean == 100.0


def test_reranking_draws_whole_groups() -> None:
    found = measure_reranking(TenSided(), Blurred(), rerank_pairs(), rows=150)
    assert (found.after.rows, found.after.left_out) == (100, 50)
    interrupted = measure_reranking(Interrupted(), Blurred(), rerank_pairs() * 2, rows=300)
    assert (interrupted.after.rows, interrupted.interrupted) == (200, True)
    with pytest.raises(InputError, match="at least 100 rows, not 99"):
        measure_reranking(TenSided(), Blurred(), rerank_pairs(), rows=99)


HEADER = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags\n"


@pytest.fixture
def ed(tmp_path: Path) -> str:
    """100 conversations of two turns, every fourth of them joyful."""
    rows = ""
    for row in range(100):
        emotion, said = ("joyful", "hooray") if row % 4 == 0 else ("sad", "alas")
        rows += f"hit:{row},1,{emotion},prompt,0,{said} for topic{row},,\n"
        rows += f"hit:{row},2,{emotion},prompt,1,about topic{row},,\n"
    (tmp_path / "valid.csv").write_text(HEADER + rows)
    return f"ed={tmp_path}"


def run(monkeypatch: pytest.MonkeyPatch, generator: Fallback, *arguments: str) -> Result:
    """The command, with a generator that needs no folder."""
    monkeypatch.setattr(command, "load_generator", lambda name, home: generator)
    given = ["evaluate", "generation", "--generator", "toy", "--encoder", "hashing", *arguments]
    return CliRunner().invoke(app, given, catch_exceptions=False)


def test_the_command(monkeypatch: pytest.MonkeyPatch, ed: str) -> None:
    done = run(monkeypatch, TenSided(), "--data", ed, "--rows", "20", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["generator"], found["corpus"], found["split"]) == ("ten-sided", "ed", "valid")
    assert found["perplexity"]["per_token"] == pytest.approx(10)
    assert found["perplexity"]["per_word"] == pytest.approx(10**1.5)  # two words and an end
    assert found["perplexity"]["tokenizer"] == "words, 10"
    assert found["emotion"] == {"accuracy": 100.0, "rows": 100}
    assert found["replies"]["rows"] == 20
    assert found["replies"]["bleu"]["orders"][0] == pytest.approx(100 / 3), "one word of three"
    assert found["interrupted"] is False
    shown = run(monkeypatch, TenSided(), "--data", ed, "--rows", "20", "--no-json")
    for expected in ("10.00", "31.62", "CAiRE", "13.32", "7.03", "dodecaDialogue", "0.140"):
        assert expected in shown.stdout
    assert "words, 10" in shown.stderr
    assert "own tokenizer" in shown.stderr


def test_the_command_reranks(monkeypatch: pytest.MonkeyPatch, ed: str) -> None:
    done = run(monkeypatch, TenSided(), "--data", ed, "--rerank", "--rows", "100", "--json")
    found = json.loads(done.stdout)
    assert found["top"] == 10
    assert found["after"]["p_at_1"]["mean"] == found["before"]["p_at_10"]["mean"]
    assert found["after"]["p_at_1"]["mean"] >= found["before"]["p_at_1"]["mean"]
    assert (
        "its first 10 reranked" in run(monkeypatch, TenSided(), "--data", ed, "--rerank", "--no-json").stdout
    )
    with pytest.raises(InputError, match="'endpoint' cannot score"):
        run(monkeypatch, Endpoint(), "--data", ed, "--rerank")


def test_the_command_shows_what_is_known_when_interrupted(monkeypatch: pytest.MonkeyPatch, ed: str) -> None:
    done = run(monkeypatch, Interrupted(), "--data", ed, "--json")
    assert done.exit_code == 130
    found = json.loads(done.stdout)
    assert (found["interrupted"], found["replies"]["rows"]) == (True, 3)
