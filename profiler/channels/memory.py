"""The memory channel: one step with every tensor storage counted, its peak by category and its timeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..process import process_peak_bytes
from .channel import Rows, StepWindow
from .host import sample_rows
from .sampler import Sample

TIMELINE_POINTS = 2000
CATEGORIES = ("total", "parameters", "gradients", "optimizer", "activations", "other")


class MemoryChannel:
    """`optimizers` gives the optimizers that are known when the weighed step begins; their parameters are the model's.

    It is not part of the active window: counting storages slows every operator, so it has a step of its own.
    """

    name = "memory"

    def __init__(
        self, optimizers: Callable[[], Sequence[Any]], *, rank: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._optimizers = optimizers
        self._rank = rank
        self._clock = clock
        self._tracker: Any = None
        self._peak: dict[str, int] | None = None
        self._samples: list[Sample] = []
        self._process_bytes: int | None = None
        self._reason: str | None = "the run ended before the step that is weighed"

    def unavailable(self) -> str | None:
        """Always: what cannot be counted is told by `facts`."""
        return None

    def start(self) -> None:
        """Begin to count."""
        # Before profilers add to it.
        self._process_bytes = process_peak_bytes()
        if self._peak is not None:
            return
        found = list(self._optimizers())
        if not found:
            self._reason = "no torch optimizer is known, so that parameters cannot be told from the rest"
            return
        if _compiles():
            self._reason = "torch.compile is in use: its kernels allocate where a dispatch mode cannot see"
            return
        from ..storage import StorageTracker

        group = _Optimizers(found)
        self._tracker = StorageTracker(group, group, clock=self._clock)  # type: ignore[arg-type]
        self._tracker.__enter__()

    def stop(self) -> None:
        """End of the weighed step."""
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        tracker.__exit__(None, None, None)
        self._peak = tracker.peak()
        self._reason = None
        timeline = tracker.timeline()
        stride = max(1, len(timeline) // TIMELINE_POINTS)
        self._samples = [Sample("live_tensors", "B", time_s, float(size)) for time_s, size in timeline[::stride]]

    def abandon(self, reason: str) -> None:
        """The weighed step did not end: drop what was counted."""
        if self._tracker is not None:
            self._tracker.__exit__(None, None, None)
            self._tracker, self._reason = None, reason

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """Samples only; the peaks come at the end."""
        samples, self._samples = self._samples, []
        return {"samples": sample_rows(samples, "memory", self._rank)}

    def last_rows(self) -> Rows:
        """Peaks by category, each known or with the reason why not."""
        process_bytes = self._process_bytes if self._process_bytes is not None else process_peak_bytes()
        rows: list[dict[str, Any]] = [
            {
                "rank": self._rank, "category": category,
                "peak_bytes": None if self._peak is None else self._peak[category],
                "reason": self._reason if self._peak is None else None,
            }
            for category in CATEGORIES
        ]  # fmt: skip
        reason = None if process_bytes is not None else "this system does not tell a process its peak resident size"
        rows.append({"rank": self._rank, "category": "process", "peak_bytes": process_bytes, "reason": reason})
        return {"memory": rows}

    def facts(self) -> dict[str, Any]:
        """How it was measured, or why not."""
        if self._peak is None:
            return {"reason": self._reason}
        from ..storage import METHOD

        return {"method": METHOD}


class _Optimizers:
    """Several optimizers in the shape that the tracker expects of a module and its optimizer."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._all = optimizers

    def parameters(self) -> Iterator[Any]:
        for group in self.param_groups:
            yield from group["params"]

    def buffers(self) -> Iterator[Any]:
        return iter(())

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._all for group in optimizer.param_groups]

    @property
    def state(self) -> dict[Any, Any]:
        return {key: value for optimizer in self._all for key, value in optimizer.state.items()}

    def register_step_pre_hook(self, hook: Any) -> Any:
        return _Handles([optimizer.register_step_pre_hook(hook) for optimizer in self._all])


class _Handles:
    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def _compiles() -> bool:
    """True when torch.compile has compiled something in this process."""
    import sys

    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and getattr(dynamo, "counters", {}).get("stats"))
