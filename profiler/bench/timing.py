"""Timing one callable under noise: repeat for a bounded time, report the median and its spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

LEAST_REPETITIONS = 5
MOST_REPETITIONS = 400


@dataclass(frozen=True)
class Timing:
    """Median seconds of one call, half the interquartile range over the median, and the number of calls."""

    time_s: float
    spread: float
    count: int

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> Timing:
        """Raises ValueError for no durations."""
        middle = median(durations_s)
        if len(durations_s) < 2 or middle <= 0:
            return cls(middle, 0.0, len(durations_s))
        low, _, high = quantiles(durations_s, n=4, method="inclusive")
        return cls(middle, (high - low) / 2 / middle, len(durations_s))


def repeat(
    call: Callable[[], object],
    *,
    budget_s: float,
    least: int = LEAST_REPETITIONS,
    most: int = MOST_REPETITIONS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of each call: at least `least` calls (at least 2 when one takes over half the budget), then until
    `budget_s` is spent or `most` calls were made. One call before them is not counted."""
    call()
    durations: list[float] = []
    started = clock()
    while len(durations) < most:
        before = clock()
        call()
        after = clock()
        durations.append(after - before)
        enough = 2 if durations[0] > budget_s / 2 else least
        if after - started >= budget_s and len(durations) >= enough:
            break
    return durations
