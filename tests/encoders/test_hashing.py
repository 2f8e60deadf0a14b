"""The encoder without weights."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ranker.encoders import HashingEncoder
from ranker.errors import ConfigError, InputError
from ranker.types import Context, Encoder

GOLDEN = [0.5039526, 0.0, -0.5039526, -0.5039526, 0.1259882, -0.1259882, -0.2519763, 0.3779645]


def test_golden_values() -> None:
    """The same on every platform and in every process."""
    vector = HashingEncoder(8).encode_candidates(["I got promoted!"])[0]
    np.testing.assert_allclose(vector, GOLDEN, atol=1e-6)
    assert HashingEncoder().fingerprint == "hashing-1-256"


def test_another_process_agrees() -> None:
    code = (
        "from ranker.encoders import HashingEncoder;"
        "print(HashingEncoder(64).encode_candidates(['My dog died.']).tobytes().hex())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert (
        bytes.fromhex(found.stdout.strip())
        == HashingEncoder(64).encode_candidates(["My dog died."]).tobytes()
    )


def test_like_texts_are_near() -> None:
    encoder = HashingEncoder()
    near, far = encoder.encode_candidates(["I am so sorry about your dog", "We bought a new car yesterday"])
    context = encoder.encode_contexts([Context.of("my dog is ill, I am sorry to say")])[0]
    assert context @ near > context @ far + 0.2


def test_rows_are_unit_float32() -> None:
    encoder = HashingEncoder(32)
    vectors = encoder.encode_candidates(["a", "🙂🙂", "\ud800 x", "word " * 20_000])
    assert vectors.shape == (4, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert encoder.encode_contexts([]).shape == (0, 32)


def test_newer_turns_weigh_more_and_old_ones_nothing() -> None:
    encoder = HashingEncoder()
    dogs, cars = encoder.encode_candidates(["dogs", "cars"])
    context = encoder.encode_contexts([Context(("cars", "dogs"))])[0]
    assert context @ dogs > context @ cars > 0.1
    five = Context(("cars", "one", "two", "three", "four"))
    np.testing.assert_array_equal(
        encoder.encode_contexts([five]), encoder.encode_contexts([Context(five.turns[1:])])
    )


def test_bad_input() -> None:
    with pytest.raises(InputError):
        HashingEncoder().encode_candidates(["fine", "   "])
    with pytest.raises(ConfigError):
        HashingEncoder(0)


def test_progress_ends_at_the_total() -> None:
    seen: list[tuple[int, int]] = []
    HashingEncoder(8).encode_candidates(["x"] * 300, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (300, 300)


def test_it_is_an_encoder() -> None:
    assert isinstance(HashingEncoder(), Encoder)
