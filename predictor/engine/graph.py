"""TaskGraph: what has to run, on which stream, after what, using what. GraphBuilder makes one.

Index order is a topological order and the order of the tasks on each stream: a task depends on smaller indices only.

Shape letters: `n` tasks, `e` dependencies, `u` resource uses, `r` resources, `m` memory changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Read-only arrays, compressed by row: the dependencies of task `t` are `dep_idx[dep_ptr[t]:dep_ptr[t + 1]]`.

    A graph holds no times; those are given to `simulate`. It takes 32 bytes per task, 4 per dependency, 12 per use of
    a resource and 20 per memory change.
    """

    stream: np.ndarray
    """(n,) int32: index in `streams`. A stream runs one task at a time, in index order."""
    dep_ptr: np.ndarray
    """(n + 1,) int64"""
    dep_idx: np.ndarray
    """(e,) int32: tasks that have to end before this one starts; its predecessor on the stream is implied."""
    use_ptr: np.ndarray
    """(n + 1,) int64"""
    use_idx: np.ndarray
    """(u,) int32: index in `resources`."""
    use_rate: np.ndarray
    """(u,) float64: what the task takes of the resource while it runs at full speed, in the unit of `capacity`."""
    label: np.ndarray
    """(n,) int32: index in `labels`."""
    category: np.ndarray
    """(n,) int32: index in `categories`."""
    row: np.ndarray
    """(n,) int32: row in the table of prices; -1 where the task has none."""
    alloc_task: np.ndarray
    """(m,) int32: task that changes memory; -1 for what is there before the first task and never goes."""
    alloc_bytes: np.ndarray
    """(m,) int64: positive is taken when the task starts, negative is given back when it ends."""
    alloc_kind: np.ndarray
    """(m,) int32: index in `kinds`."""
    alloc_space: np.ndarray
    """(m,) int32: index in `spaces`."""
    capacity: np.ndarray
    """(r,) float64: what each resource gives per unit of time to all its users together; may be infinite."""
    streams: tuple[str, ...]
    resources: tuple[str, ...]
    labels: tuple[str, ...]
    categories: tuple[str, ...]
    kinds: tuple[str, ...]
    """What memory is used for: parameters, activations, ..."""
    spaces: tuple[str, ...]
    """Where memory is: one per device or rank class."""

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.stream)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (getattr(self, field.name) for field in fields(self))
        return sum(values.nbytes for values in arrays if isinstance(values, np.ndarray))


class _Names:
    """Strings to small integers, in order of first appearance."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self.index.setdefault(name, len(self.index))

    def done(self) -> tuple[str, ...]:
        return tuple(self.index)


class GraphBuilder:
    """Append tasks in topological order, then `build`. About a microsecond per task; no object is kept per task."""

    def __init__(self) -> None:
        self._streams: list[str] = []
        self._resources: list[str] = []
        self._spaces: list[str] = []
        self._label, self._category, self._kind = _Names(), _Names(), _Names()
        self._capacity = array("d")
        self._task_stream, self._task_label, self._task_category, self._task_row = (array("i") for _ in range(4))
        self._dep_ptr, self._dep_idx = array("q", [0]), array("i")
        self._use_ptr, self._use_idx, self._use_rate = array("q", [0]), array("i"), array("d")
        self._alloc_task, self._alloc_bytes = array("i"), array("q")
        self._alloc_kind, self._alloc_space = array("i"), array("i")

    def __len__(self) -> int:
        """Number of tasks so far, which is the id of the next one."""
        return len(self._task_stream)

    def add_stream(self, name: str) -> int:
        """A queue that runs its tasks one after another, in the order in which they are added. Returns its index."""
        self._streams.append(name)
        return len(self._streams) - 1

    def add_resource(self, name: str, capacity: float) -> int:
        """Something that tasks of several streams share: link, cores, memory bandwidth. Returns its index."""
        self._resources.append(name)
        self._capacity.append(capacity)
        return len(self._resources) - 1

    def add_space(self, name: str) -> int:
        """A memory of its own: one device, or one rank of a class. Returns its index."""
        self._spaces.append(name)
        return len(self._spaces) - 1

    def task(
        self,
        stream: int,
        *,
        label: str,
        category: str,
        row: int = -1,
        after: Iterable[int] = (),
        uses: Mapping[int, float] | None = None,
    ) -> int:
        """Add a task and return its id.

        `after`: ids of tasks that have to end first. `uses`: resource -> what is taken of its capacity at full speed;
        a task whose resources are contended runs slower. `row`: its row in the table of prices, -1 for none.
        """
        task = len(self._task_stream)
        self._task_stream.append(stream)
        self._task_label.append(self._label(label))
        self._task_category.append(self._category(category))
        self._task_row.append(row)
        if after:
            self._dep_idx.extend(after)
        self._dep_ptr.append(len(self._dep_idx))
        if uses:
            self._use_idx.extend(uses)
            self._use_rate.extend(uses.values())
        self._use_ptr.append(len(self._use_idx))
        return task

    def alloc(self, task: int, space: int, kind: str, size_bytes: int) -> None:
        """Take `size_bytes` when `task` starts; a negative size is given back when it ends."""
        self._alloc_task.append(task)
        self._alloc_space.append(space)
        self._alloc_kind.append(self._kind(kind))
        self._alloc_bytes.append(size_bytes)

    def free(self, task: int, space: int, kind: str, size_bytes: int) -> None:
        """Give `size_bytes` back when `task` ends."""
        self.alloc(task, space, kind, -size_bytes)

    def resident(self, space: int, kind: str, size_bytes: int) -> None:
        """Count `size_bytes` from the first moment to the last."""
        self.alloc(-1, space, kind, size_bytes)

    def build(self) -> TaskGraph:
        """Check everything and return the graph. Raises `ValueError` for a graph that could not be run."""
        graph = TaskGraph(
            stream=_frozen(self._task_stream),
            dep_ptr=_frozen(self._dep_ptr),
            dep_idx=_frozen(self._dep_idx),
            use_ptr=_frozen(self._use_ptr),
            use_idx=_frozen(self._use_idx),
            use_rate=_frozen(self._use_rate),
            label=_frozen(self._task_label),
            category=_frozen(self._task_category),
            row=_frozen(self._task_row),
            alloc_task=_frozen(self._alloc_task),
            alloc_bytes=_frozen(self._alloc_bytes),
            alloc_kind=_frozen(self._alloc_kind),
            alloc_space=_frozen(self._alloc_space),
            capacity=_frozen(self._capacity),
            streams=tuple(self._streams),
            resources=tuple(self._resources),
            labels=self._label.done(),
            categories=self._category.done(),
            kinds=self._kind.done(),
            spaces=tuple(self._spaces),
        )
        _check(graph)
        return graph


def _frozen(values: array) -> np.ndarray:
    copied = np.array(values)  # a copy: a view would forbid the builder to go on
    copied.setflags(write=False)
    return copied


def _check(graph: TaskGraph) -> None:
    tasks = len(graph)
    dependents = np.repeat(np.arange(tasks, dtype=np.int32), np.diff(graph.dep_ptr))
    users = np.repeat(np.arange(tasks, dtype=np.int32), np.diff(graph.use_ptr))

    def refuse(wrong: np.ndarray, task: np.ndarray, value: np.ndarray, what: str) -> None:
        if wrong.any():
            first = int(wrong.argmax())
            raise ValueError(f"task graph: task {task[first]} {what.format(value[first])}")

    def outside(values: np.ndarray, end: int) -> np.ndarray:
        return (values < 0) | (values >= end)

    every = np.arange(tasks)
    refuse(outside(graph.stream, len(graph.streams)), every, graph.stream, "is on stream {}, which was not added")
    late = (graph.dep_idx < 0) | (graph.dep_idx >= dependents)
    refuse(late, dependents, graph.dep_idx, "depends on task {}; dependencies come before their task")
    refuse(outside(graph.use_idx, len(graph.resources)), users, graph.use_idx, "uses resource {}, which was not added")
    rate = graph.use_rate
    refuse(~((rate >= 0) & (rate < np.inf)), users, rate, "takes {} of a resource; it has to be 0 or more, and finite")
    missing = (graph.alloc_task < -1) | (graph.alloc_task >= tasks)
    refuse(missing, graph.alloc_task, graph.alloc_bytes, "changes memory by {} bytes but was not added")
    space = graph.alloc_space
    refuse(outside(space, len(graph.spaces)), graph.alloc_task, space, "changes memory space {}, which was not added")
    for name, capacity in zip(graph.resources, graph.capacity, strict=True):
        if not capacity > 0:
            raise ValueError(f"task graph: resource {name!r} has capacity {capacity}; it has to be above 0")
