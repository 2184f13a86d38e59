"""MemoryTimeline: how full a memory is over a simulated run, and with what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .graph import TaskGraph
from .simulate import Simulated


@dataclass(frozen=True, eq=False)
class MemoryTimeline:
    """Changes of one memory space in the order in which they happen. `m` changes."""

    space: str
    kinds: tuple[str, ...]
    time_s: np.ndarray
    """(m,) float64, ascending. What is resident is there from 0."""
    change_bytes: np.ndarray
    """(m,) int64: positive where memory is taken."""
    kind: np.ndarray
    """(m,) int32: index in `kinds`."""
    peak_bytes: int
    """The most that is held at a time; 0 where nothing ever is."""
    peak_at_s: float
    """When that is reached first."""
    parts_bytes: dict[str, int]
    """What is held at the peak by kind, without the kinds that hold nothing; sums to `peak_bytes`."""

    def total_bytes(self) -> np.ndarray:
        """(m,) int64: bytes held after each change."""
        return np.cumsum(self.change_bytes)

    def bytes_by_kind(self) -> dict[str, np.ndarray]:
        """Kind -> (m,) int64: bytes held after each change."""
        return {
            name: np.cumsum(np.where(self.kind == index, self.change_bytes, 0)) for index, name in enumerate(self.kinds)
        }

    def peak_between(self, start_s: float, end_s: float) -> int:
        """The most bytes held at a time in start_s <= time < end_s: what a task put there would have to fit beside."""
        first = int(np.searchsorted(self.time_s, start_s, side="right"))
        beyond = int(np.searchsorted(self.time_s, end_s, side="left"))
        held = np.concatenate(([0], self.total_bytes()))
        return int(held[first : max(beyond, first) + 1].max())


def memory_timelines(graph: TaskGraph, simulated: Simulated) -> dict[str, MemoryTimeline]:
    """The timeline of every memory space by name, for one sample.

    At equal times changes go by task, and within a task memory is taken before it is given back: a task that needs
    scratch memory for no time still needs it.
    """
    taken = graph.alloc_bytes >= 0
    time_s = np.where(taken, _at(simulated.start_s, graph.alloc_task), _at(simulated.end_s, graph.alloc_task))
    order = np.lexsort((~taken, graph.alloc_task, time_s, graph.alloc_space))
    bounds = np.searchsorted(graph.alloc_space[order], np.arange(len(graph.spaces) + 1))
    timelines = {}
    for index, space in enumerate(graph.spaces):
        changes = order[bounds[index] : bounds[index + 1]]
        timelines[space] = _timeline(
            space, graph.kinds, time_s[changes], graph.alloc_bytes[changes], graph.alloc_kind[changes]
        )
    return timelines


def _at(times_s: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Times of tasks; 0 where the task is -1, which stands for before the first."""
    return np.concatenate((times_s, [0.0]))[task]


def _timeline(
    space: str, kinds: tuple[str, ...], time_s: np.ndarray, change_bytes: np.ndarray, kind: np.ndarray
) -> MemoryTimeline:
    total = np.cumsum(change_bytes)
    peak = int(total.argmax()) if len(total) and total.max() > 0 else -1
    parts = np.zeros(len(kinds), np.int64)
    np.add.at(parts, kind[: peak + 1], change_bytes[: peak + 1])
    return MemoryTimeline(
        space=space,
        kinds=kinds,
        time_s=time_s,
        change_bytes=change_bytes,
        kind=kind,
        peak_bytes=int(total[peak]) if peak >= 0 else 0,
        peak_at_s=float(time_s[peak]) if peak >= 0 else 0.0,
        parts_bytes={name: int(size) for name, size in zip(kinds, parts, strict=True) if size},
    )
