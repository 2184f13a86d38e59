"""simulate: durations -> when every task starts and ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .graph import TaskGraph


@dataclass(frozen=True, eq=False)
class Simulated:
    """One run of a graph, or one run per sample of the durations."""

    start_s: np.ndarray
    """(tasks,) or (samples, tasks) float64 seconds."""
    end_s: np.ndarray
    """Same shape."""
    makespan_s: float | np.ndarray
    """End of the last task, 0 without tasks: a number, or (samples,) float64."""

    def sample(self, index: int) -> Simulated:
        """One of several samples."""
        return Simulated(self.start_s[index], self.end_s[index], float(np.asarray(self.makespan_s)[index]))


def simulate(graph: TaskGraph, durations_s: np.ndarray) -> Simulated:
    """Run `graph` with these durations: seconds at full speed, (tasks,) or (samples, tasks), zero or more.

    A task starts as soon as its predecessor on the stream and its dependencies have ended, and takes its duration.
    With shared resources every running task wants rate 1 and gets its max-min fair rate: the rates rise together until
    a resource is used up, its users stay there, the others go on up to 1; rates are shared out anew whenever a task
    starts or ends. Where no resource is used up both ways give the same bits.

    Time is O(tasks + dependencies) per sample; with resources it grows by the number of tasks that run at a time.
    Memory beside the graph: 16 bytes per task and sample for the result; with resources 24 bytes per task and 4 per
    dependency while it runs, whatever the number of samples. The interpreter's lock is released.

    Raises `ValueError` for a wrong shape and for durations that are negative, infinite or NaN.
    """
    durations_s = _checked(graph, durations_s)
    matrix = np.atleast_2d(durations_s)
    start, end = np.empty_like(matrix), np.empty_like(matrix)
    makespan = _run(graph, matrix, start, end)
    if durations_s.ndim == 1:
        return Simulated(start[0], end[0], float(makespan[0]))
    return Simulated(start, end, makespan)


def makespans(graph: TaskGraph, durations_s: np.ndarray) -> np.ndarray:
    """(samples,) seconds: the makespans of `simulate` for (samples, tasks) durations, without starts and ends.

    For Monte Carlo over many samples: memory is that of one sample.
    """
    matrix = np.atleast_2d(_checked(graph, durations_s))
    return _run(graph, matrix, np.empty((1, len(graph))), np.empty((1, len(graph))))


def _checked(graph: TaskGraph, durations_s: np.ndarray) -> np.ndarray:
    durations_s = np.ascontiguousarray(durations_s, dtype=np.float64)
    if durations_s.ndim not in (1, 2) or durations_s.shape[-1] != len(graph):
        raise ValueError(f"simulate: durations have shape {durations_s.shape}, the graph has {len(graph)} tasks")
    return durations_s


def _run(graph: TaskGraph, matrix: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Fill `start` and `end`, whose last row serves all samples beyond it, and return the makespans."""
    from ._kernels import advance_by_events, longest_path

    makespan = np.zeros(len(matrix))
    order = (len(graph.streams), graph.stream, graph.dep_ptr, graph.dep_idx)
    if len(graph.use_idx):
        sharing = (graph.use_ptr, graph.use_idx, graph.use_rate, graph.capacity)
        valid = advance_by_events(*order, *sharing, matrix, start, end, makespan)
    else:
        valid = longest_path(*order, matrix, start, end, makespan)
    if not valid:
        sample, task = np.argwhere(~((matrix >= 0) & (matrix < np.inf)))[0]
        raise ValueError(
            f"simulate: task {task} ({graph.labels[graph.label[task]]}) has a duration of {matrix[sample, task]} s "
            f"in sample {sample}; it has to be finite, 0 or more"
        )
    return makespan
