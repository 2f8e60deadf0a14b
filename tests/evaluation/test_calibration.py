from __future__ import annotations

import numpy as np
import pytest

from ranker.errors import InputError
from ranker.evaluation.calibration import calibrate, calibration_error, fit_logistic
from ranker.types import Calibration


def test_logistic_recovers_known_weights() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, 200_000)
    hits = (rng.uniform(size=scores.size) < 1 / (1 + np.exp(-(3 * scores - 0.5)))).astype(float)
    fitted = fit_logistic(scores, hits)
    assert fitted.slope == pytest.approx(3, abs=0.05)
    assert fitted.intercept == pytest.approx(-0.5, abs=0.03)


def test_logistic_by_hand() -> None:
    """Score 0 hits 1 of 4, score 1 hits 3 of 4: log-odds -ln 3 and +ln 3."""
    scores = np.repeat([0.0, 1.0], 400)
    hits = np.concatenate([np.repeat([1.0, 0.0], [100, 300]), np.repeat([1.0, 0.0], [300, 100])])
    fitted = fit_logistic(scores, hits)
    assert fitted.probability(0.0) == pytest.approx(0.25, abs=1e-4)
    assert fitted.probability(1.0) == pytest.approx(0.75, abs=1e-4)


def test_separable_scores_stay_finite() -> None:
    fitted = fit_logistic(np.array([0.0, 0.1, 0.9, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    assert 0.5 < fitted.probability(1.0) < 1.0


def test_error_by_hand() -> None:
    """A calibration that always says 0.5, where 70 of 100 hit: wrong by 0.2 on average over bins."""
    hits = np.tile([1.0] * 7 + [0.0] * 3, 10)
    assert calibration_error(Calibration(0.0, 0.0), np.zeros(100), hits) == pytest.approx(0.2)


def test_calibrate_is_right_on_data_like_its_own() -> None:
    rng = np.random.default_rng(1)
    responses = rng.normal(size=(1200, 24)).astype(np.float32)
    contexts = responses + 1.5 * rng.normal(size=responses.shape).astype(np.float32)
    responses /= np.linalg.norm(responses, axis=1, keepdims=True)
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    found = calibrate(contexts, responses, [str(row) for row in range(1200)])
    assert found.calibration.slope > 0
    assert found.error < 0.05
    assert found.rows == 2400


def test_too_few_pairs() -> None:
    with pytest.raises(InputError, match="at least 200 pairs, not 3"):
        calibrate(np.ones((3, 2), np.float32), np.ones((3, 2), np.float32), ["a", "b", "c"])
