"""Channel: one thing that can be recorded while steps run, or the reason why it cannot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Protocol


@dataclass(frozen=True)
class StepWindow:
    """One step inside the active window, in seconds of the session's clock."""

    step: int
    start_s: float
    end_s: float
    described: bool = False
    """True when the execution trace ran in it, which makes every op several times slower."""

    @property
    def time_s(self) -> float:
        """Wall seconds."""
        return self.end_s - self.start_s


class StepWindows:
    """Looks up the step that a moment lies in."""

    def __init__(self, steps: Sequence[StepWindow]) -> None:
        self._steps = sorted(steps, key=lambda step: step.start_s)
        self._starts = [step.start_s for step in self._steps]

    def of(self, moment_ns: int) -> int | None:
        """The step, or None when the moment lies in none of them."""
        place = bisect_right(self._starts, moment_ns / 1e9) - 1
        if place < 0 or moment_ns / 1e9 >= self._steps[place].end_s:
            return None
        return self._steps[place].step


def spread(values: Sequence[float]) -> float | None:
    """Half interquartile range over median; None with fewer than two values or a median of 0."""
    if len(values) < 2 or not median(values):
        return None
    low, _, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / median(values)


Rows = dict[str, list[dict[str, Any]]]
"""Table -> rows, as `RunWriter.write` takes them."""


class Channel(Protocol):
    """What a session asks of a channel: `unavailable`, then for every active window `start`, `stop`, `rows`."""

    name: str

    def unavailable(self) -> str | None:
        """None when it can record here, else the reason why not. Asked once, before the first window."""

    def start(self) -> None:
        """The active window begins."""

    def stop(self) -> None:
        """The active window ends; called again without a start it does nothing."""

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """What the last window recorded. `steps` are those of its steps that were finished; what lies outside of them
        belongs to none."""

    def last_rows(self) -> Rows:
        """What can only be told at the end of the run; called once, after the last window."""

    def facts(self) -> dict[str, Any]:
        """For the channel's entry in the manifest, beside `status` and `reason`; `reason` here means that nothing
        could be recorded after all."""
