"""Sampler: one daemon thread that asks several readers for numbers while the active window lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_S = 0.1


@dataclass(frozen=True)
class Sample:
    """One number at one moment of the session's clock. `value` is None when the reader could not tell."""

    name: str
    unit: str
    time_s: float
    value: float | None


Reader = Callable[[float], list[Sample]]
"""Called with the time; must not raise."""


class Sampler:
    """Reads at `start`, every `INTERVAL_S`, and at `stop`."""

    def __init__(self, read: Reader, *, clock: Callable[[], float] = time.perf_counter, interval_s: float = INTERVAL_S):
        self.samples: list[Sample] = []
        self._read = read
        self._clock = clock
        self._interval_s = interval_s
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """First sample now; the thread takes the others."""
        self.samples = self._read(self._clock())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ended,), name="foretrace-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Last sample; does nothing when it was not started."""
        if self._ended is None or self._thread is None:
            return
        self._ended.set()
        self._thread.join(timeout=5)
        self._ended = self._thread = None
        self.samples += self._read(self._clock())

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(self._interval_s):
            self.samples += self._read(self._clock())
