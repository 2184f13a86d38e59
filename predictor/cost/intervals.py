"""Intervals: from the spreads of the prices to an 80 % interval of the step.

Errors of one op family are taken as common to all its ops (they share measurements), errors of different families as
independent. What no price knows about (the machine's mood between the day it was measured and the run) is a floor.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Protocol

# 80 % of a normal distribution lies within 1.28 standard deviations.
_Z_80 = 1.2816
# Log-standard deviation of step times left unexplained when every price is right: cold, and with a run of the same
# model; from our closed-loop runs on other workloads than the one predicted (docs/accuracy-cpu.md).
_FLOOR_COLD = 0.09
_FLOOR_CALIBRATED = 0.05


class HasVariance(Protocol):
    """What an interval is made from."""

    variance_s2: dict[str, float]


def interval(lowered: HasVariance, step_time_s: float, *, calibrated: bool) -> tuple[float, float]:
    """(low, high) seconds that hold the median step of healthy runs in four of five cases."""
    if step_time_s <= 0:
        return 0.0, 0.0
    relative = sqrt(sum(lowered.variance_s2.values())) / step_time_s
    floor = _FLOOR_CALIBRATED if calibrated else _FLOOR_COLD
    width = _Z_80 * sqrt(relative**2 + floor**2)
    return step_time_s * exp(-width), step_time_s * exp(width)
