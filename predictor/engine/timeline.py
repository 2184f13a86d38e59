"""Timeline: a simulated run as plain data for renderers, and what is read off it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .graph import TaskGraph
from .simulate import Simulated

IDLE = "idle"
"""Part of the critical path on which nothing runs."""


class Span(NamedTuple):
    """One task of a timeline."""

    stream: str
    start_s: float
    end_s: float
    label: str
    category: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """Spans as columns, one place per task, in the order of the graph. Iterating gives `Span`s."""

    streams: tuple[str, ...]
    labels: tuple[str, ...]
    categories: tuple[str, ...]
    stream: np.ndarray
    """(n,) int32: index in `streams`."""
    start_s: np.ndarray
    """(n,) float64"""
    end_s: np.ndarray
    """(n,) float64"""
    label: np.ndarray
    """(n,) int32: index in `labels`."""
    category: np.ndarray
    """(n,) int32: index in `categories`."""
    makespan_s: float

    @classmethod
    def of(cls, graph: TaskGraph, simulated: Simulated) -> Timeline:
        """The timeline of one sample."""
        return cls(
            streams=graph.streams,
            labels=graph.labels,
            categories=graph.categories,
            stream=graph.stream,
            start_s=simulated.start_s,
            end_s=simulated.end_s,
            label=graph.label,
            category=graph.category,
            makespan_s=_one(simulated),
        )

    def __len__(self) -> int:
        return len(self.stream)

    def __iter__(self) -> Iterator[Span]:
        columns = (self.stream, self.start_s, self.end_s, self.label, self.category)
        for stream, start_s, end_s, label, category in zip(*(column.tolist() for column in columns), strict=True):
            yield Span(self.streams[stream], start_s, end_s, self.labels[label], self.categories[category])

    def busy_s(self, stream: str) -> float:
        """Seconds in which `stream` runs something."""
        return _length(*self._merged(np.isin(self.stream, _indices(self.streams, [stream]))))

    def bubbles(self, stream: str) -> list[tuple[float, float]]:
        """The (start_s, end_s) in which `stream` runs nothing, from time 0 to the end of the whole run."""
        start, end = self._merged(np.isin(self.stream, _indices(self.streams, [stream])))
        gap_start, gap_end = np.concatenate(([0.0], end)), np.concatenate((start, [self.makespan_s]))
        gaps = gap_end > gap_start
        return list(zip(gap_start[gaps].tolist(), gap_end[gaps].tolist(), strict=True))

    def exposed_s(
        self, category: str, over: Iterable[str] | None = None, *, streams: Iterable[str] | None = None
    ) -> float:
        """Seconds in which something of `category` runs and nothing of the categories `over` does.

        `over`: None stands for all other categories. `streams`: look at these only (those of one stage or rank, say);
        None stands for all. Raises `KeyError` for a stream that the timeline does not have; a category that no task
        has is never seen, so it gives 0.
        """
        seen = np.ones(len(self), bool)
        if streams is not None:
            seen = np.isin(self.stream, _indices(self.streams, streams))
        mine = np.array([name == category for name in self.categories], bool)
        hides = ~mine
        if over is not None:
            names = set(over)
            hides = np.array([name in names for name in self.categories], bool)
        covering = self._merged(seen & hides[self.category])
        together = self._merged(seen & (hides | mine)[self.category])
        return max(0.0, _length(*together) - _length(*covering))

    def _merged(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The union of the chosen spans as disjoint intervals in order: starts and ends."""
        chosen = chosen & (self.end_s > self.start_s)
        start, end = self.start_s[chosen], self.end_s[chosen]
        if not len(start):
            return start, end
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        opens = np.concatenate(([True], start[1:] > reach[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        return start[opens], reach[closes]


def critical_path(graph: TaskGraph, simulated: Simulated) -> list[int]:
    """Tasks, first to last, that start one when the other ends and so add up to the makespan.

    From the task that ends last back through what each waited for last; where two ended together it is the task on the
    same stream. Empty for a graph without tasks.
    """
    from ._kernels import walk_back

    _one(simulated)
    if not len(graph):
        return []
    last = int(simulated.end_s.argmax())
    path = walk_back(
        len(graph.streams), graph.stream, graph.dep_ptr, graph.dep_idx, np.ascontiguousarray(simulated.end_s), last
    )
    return path[::-1].tolist()


def parts(graph: TaskGraph, simulated: Simulated) -> dict[str, float]:
    """Category -> its seconds on the critical path; they sum to the makespan, to rounding.

    Time between two tasks of the path, which only durations from elsewhere can leave, is `idle`.
    """
    path = critical_path(graph, simulated)
    start_s, end_s = simulated.start_s[path], simulated.end_s[path]
    idle_s = start_s - np.concatenate(([0.0], end_s[:-1]))
    category = graph.category[path]
    seconds = {}
    for index in dict.fromkeys(category.tolist()):
        seconds[graph.categories[index]] = math.fsum((end_s - start_s)[category == index])
    if idle_s.any():
        seconds[IDLE] = seconds.get(IDLE, 0.0) + math.fsum(idle_s)
    return seconds


def _one(simulated: Simulated) -> float:
    if simulated.start_s.ndim != 1:
        raise ValueError("a timeline shows one sample: choose it with Simulated.sample(index)")
    return float(simulated.makespan_s)


def _length(start_s: np.ndarray, end_s: np.ndarray) -> float:
    return math.fsum(end_s - start_s)


def _indices(known: tuple[str, ...], names: Iterable[str]) -> list[int]:
    """Every place of each name: classes of ranks may give streams the same name."""
    indices = []
    for name in names:
        found = [index for index, other in enumerate(known) if other == name]
        if not found:
            raise KeyError(f"no stream {name!r}; there are {', '.join(known)}")
        indices += found
    return indices
