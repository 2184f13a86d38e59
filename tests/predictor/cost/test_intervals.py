"""Intervals and trust by hand arithmetic."""

from math import log
from types import SimpleNamespace

import pytest
from foretrace.predictor.cost.intervals import interval, mood_of, trust


def test_width_joins_families_floor_and_mood():
    lowered = SimpleNamespace(variance_s2={"matmul": 0.03**2, "softmax": 0.04**2})
    low_s, high_s = interval(lowered, 1.0, calibrated=False, mood=0.12)
    # sqrt(0.03² + 0.04² + 0.09² + 0.12²) = sqrt(0.025), 1.2816 of them each way.
    assert log(high_s) == pytest.approx(1.2816 * 0.025**0.5)
    assert low_s * high_s == pytest.approx(1.0)


def test_nothing_takes_nothing():
    assert interval(SimpleNamespace(variance_s2={}), 0.0, calibrated=True, mood=0.1) == (0.0, 0.0)


def test_a_steady_machine_is_believed_wholly_and_a_moody_one_in_part():
    assert trust(0.0) == 1.0
    assert trust(0.09) == pytest.approx(1 / 3)


def test_a_device_file_may_know_no_mood():
    assert mood_of({}) == mood_of({"mood": None}) == 0.0
    assert mood_of({"mood": 0.2}) == 0.2
