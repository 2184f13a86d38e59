"""Timing: medians, spreads and stopping rules by hand arithmetic, with a clock that does as told."""

import pytest
from foretrace.profiler.bench.timing import Timing, repeat


def test_median_and_half_the_interquartile_range():
    # Sorted 1 2 3 4 5: quartiles 2 and 4, median 3; half the range is 1, over the median 1/3.
    timing = Timing.of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert timing == Timing(3.0, pytest.approx(1 / 3), 5)


def test_one_duration_has_no_spread():
    assert Timing.of([2.0]) == Timing(2.0, 0.0, 1)


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError):
        Timing.of([])


class Clock:
    """Moves on by what the timed call says it takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, seconds: float):
        def run() -> None:
            self.now += seconds

        return run


def test_short_calls_fill_the_budget():
    clock = Clock()
    # 1/8 s each (exact in binary), budget 1 s: the 8th call reaches it.
    assert repeat(clock.call(0.125), budget_s=1.0, clock=clock) == [0.125] * 8


def test_long_calls_are_made_twice():
    clock = Clock()
    assert repeat(clock.call(3.0), budget_s=1.0, clock=clock) == [3.0, 3.0]


def test_most_calls_end_it_before_the_budget():
    clock = Clock()
    assert len(repeat(clock.call(0.0), budget_s=1.0, most=7, clock=clock)) == 7
