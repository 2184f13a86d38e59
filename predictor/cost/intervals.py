"""Intervals: from the spreads of the prices to an 80 % interval of the step.

Errors of one op family are taken as common to all its ops (they share measurements), errors of different families as
independent. What no price knows about is a floor: how models are wrong where all their prices are right, and the
machine's mood, which differs between the hour it was measured and the hour of the run. On a shared host the mood is
most of it, so a device file tells how large it was.
"""

from collections.abc import Mapping
from math import exp, sqrt
from typing import Any, Protocol

# 80 % of a normal distribution lies within 1.28 standard deviations.
_Z_80 = 1.2816
# Log-standard deviation of step times left unexplained when every price is right and the machine keeps its pace: cold,
# and with a run of the same model. Set by judgement; no quiet machine was at hand to fit them on.
_FLOOR_COLD = 0.09
_FLOOR_CALIBRATED = 0.05


def mood_of(facts: Mapping[str, Any]) -> float:
    """The machine's mood as its device file tells it, a log-standard deviation; 0 in files from before it was kept."""
    return float(facts.get("mood") or 0.0)


def trust(mood: float) -> float:
    """Part of a run's log ratio to its prediction that is to be believed.

    What a run shows is the model's error (cold floor) plus two moods, the run's and the device file's; the best linear
    estimate of the first from the sum is this share.
    """
    return _FLOOR_COLD**2 / (_FLOOR_COLD**2 + 2 * mood**2)


class HasVariance(Protocol):
    """What an interval is made from."""

    variance_s2: dict[str, float]


def interval(lowered: HasVariance, step_time_s: float, *, calibrated: bool, mood: float) -> tuple[float, float]:
    """(low, high) seconds that hold the median step of healthy runs in four of five cases."""
    if step_time_s <= 0:
        return 0.0, 0.0
    relative = sqrt(sum(lowered.variance_s2.values())) / step_time_s
    floor = _FLOOR_CALIBRATED if calibrated else _FLOOR_COLD
    width = _Z_80 * sqrt(relative**2 + floor**2 + mood**2)
    return step_time_s * exp(-width), step_time_s * exp(width)
