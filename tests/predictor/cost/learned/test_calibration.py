"""Calibration: one offset from few timings, smooth over shapes, robust against an outlier."""

import numpy as np
import pytest
from foretrace.predictor.cost.learned.calibration import GaussianCalibration, Kernel, spread_out


def test_one_timing_moves_the_price_by_the_share_that_the_prior_allows():
    # Prior variance of a correction at the timing: 0.3² + 0.4² = 0.25; noise 0.5² = 0.25. Half of log 2 is believed.
    fitted = GaussianCalibration(Kernel(0.3, 0.4, 1.0, 0.5)).fit(np.zeros((1, 1)), np.array([np.log(2.0)]))
    here, spread = fitted.predict(np.zeros((1, 1)))
    assert here[0] == pytest.approx(0.5 * np.log(2.0))
    # Posterior variance 0.25 - 0.25² / 0.5 = 0.125, plus noise 0.25.
    assert spread[0] == pytest.approx(np.sqrt(0.375))
    # Far away only the offset's share is left: 0.09 / 0.5.
    far, _ = fitted.predict(np.full((1, 1), 100.0))
    assert far[0] == pytest.approx(0.18 * np.log(2.0))


def test_an_outlier_does_not_carry_the_rest():
    features = np.linspace(0, 5, 12)[:, None]
    ratio = np.full(12, 0.2)
    ratio[5] = 3.0
    fitted = GaussianCalibration(Kernel(0.3, 0.05, 2.0, 0.05)).fit(features, ratio)
    assert fitted.predict(features)[0] == pytest.approx(np.full(12, 0.2), abs=0.05)


def test_shapes_worth_timing_are_distinct_and_cover():
    rows = np.repeat(np.arange(4.0), 25)[:, None] * np.array([[1.0, -2.0]])
    chosen = spread_out(rows, 4)
    assert sorted(rows[chosen, 0]) == [0, 1, 2, 3]
    assert len(spread_out(rows, 10)) == 4
