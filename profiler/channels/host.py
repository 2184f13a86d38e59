"""The host channel: CPU time, context switches and resident memory of this process, load of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from .channel import Rows, StepWindow
from .sampler import Sample, Sampler


class HostChannel:
    """Reads through psutil."""

    name = "host"

    def __init__(self, *, rank: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._rank = rank
        self._process: Any = None
        self._sampler = Sampler(self.read, clock=clock)
        self._seen = False

    def unavailable(self) -> str | None:
        """None, or that psutil is missing."""
        try:
            import psutil
        except ModuleNotFoundError:
            return "psutil is not installed"
        self._process = psutil.Process()
        return None

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()

    def stop(self) -> None:
        """End."""
        self._sampler.stop()

    def read(self, time_s: float) -> list[Sample]:
        """Totals of this process since it started, and the state of the machine. What cannot be read is None."""
        found: list[Sample] = []

        def add(name: str, unit: str, value: Callable[[], float]) -> None:
            try:
                found.append(Sample(name, unit, time_s, float(value())))
            except (OSError, AttributeError, RuntimeError, ValueError):
                found.append(Sample(name, unit, time_s, None))
            except Exception as error:  # psutil.Error is no subclass of any of them
                if type(error).__module__.partition(".")[0] != "psutil":
                    raise
                found.append(Sample(name, unit, time_s, None))

        process = self._process
        with process.oneshot():
            add("cpu_time", "s", lambda: sum(process.cpu_times()[:2]))
            add("context_switches_voluntary", "1", lambda: process.num_ctx_switches().voluntary)
            add("context_switches_involuntary", "1", lambda: process.num_ctx_switches().involuntary)
            add("resident_memory", "B", lambda: process.memory_info().rss)
        add("load_1_min", "1", lambda: os.getloadavg()[0])
        return found

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """Samples of the window."""
        self._seen |= bool(self._sampler.samples)
        return {"samples": sample_rows(self._sampler.samples, "host", self._rank)}

    def last_rows(self) -> Rows:
        """Nothing more."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Why there is nothing, if so."""
        return {} if self._seen else {"reason": "the run ended before the active window began"}


def sample_rows(samples: Sequence[Sample], channel: str, rank: int) -> list[dict[str, Any]]:
    """Rows of SAMPLES."""
    return [
        {
            "rank": rank, "channel": channel, "name": one.name, "unit": one.unit, "time_s": one.time_s,
            "value": one.value,
        }
        for one in samples
    ]  # fmt: skip
