"""Raw profiler events as plain data, and how they nest on a thread.

Times are whole nanoseconds: microseconds on a base of 10^12, as trace files have them, lose their digits in float32 and
nearly all of them in a difference of float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

ROUNDING_NS = 2
"""A child may end this much after its parent: both ends were rounded on their own."""

FUNCTION_SCOPE, USER_SCOPE = 0, 7
"""`at::RecordScope` of an operator and of an annotation."""


@dataclass(slots=True)
class RawEvent:
    """One interval on one thread or device stream, as the profiler reports it."""

    name: str
    start_ns: int
    end_ns: int
    thread: int
    scope: int = FUNCTION_SCOPE
    identity: int = 0
    """Our number of the event, unique in a recording; 0 when it has none. The execution trace is joined by it."""
    shapes: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    strides: Sequence[Any] = ()
    concrete: Sequence[Any] = ()
    extra: dict[str, str] = field(default_factory=dict)
    """What communication ops say of themselves (`Collective name`, `Group size`, ...)."""
    device: str = "cpu"
    """`cpu`, or `cuda:0` for what ran on a device; `thread` is then its stream."""
    launched_by: int = 0
    """For device events: `identity` of the operator that launched it."""

    @property
    def duration_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


@dataclass
class Nesting:
    """How the events of a recording contain each other, thread by thread."""

    events: list[RawEvent]
    """By thread, then start, parents before their children."""
    parents: list[int | None]
    """By event: index of the innermost event of the same thread around it."""
    self_ns: list[int]
    """By event: its duration without its children's; never negative."""
    descendants: list[int]
    """By event: how many events lie inside, at any depth."""


def nest(events: Iterable[RawEvent]) -> Nesting:
    """Order events and find parents. What starts where another ends is its sibling."""
    threads: dict[tuple[str, int], list[RawEvent]] = defaultdict(list)
    for event in events:
        threads[event.device, event.thread].append(event)
    ordered: list[RawEvent] = []
    parents: list[int | None] = []
    self_ns: list[int] = []
    descendants: list[int] = []
    for key in sorted(threads):
        stack: list[int] = []
        for event in sorted(threads[key], key=lambda one: (one.start_ns, -one.end_ns)):
            index = len(ordered)
            while stack and not _inside(event, ordered[stack[-1]]):
                stack.pop()
            parent = stack[-1] if stack else None
            ordered.append(event)
            parents.append(parent)
            self_ns.append(event.duration_ns)
            descendants.append(0)
            if parent is not None:
                inside_ns = min(event.end_ns, ordered[parent].end_ns) - event.start_ns
                self_ns[parent] = max(0, self_ns[parent] - inside_ns)
                for around in stack:
                    descendants[around] += 1
            stack.append(index)
    return Nesting(ordered, parents, self_ns, descendants)


def _inside(event: RawEvent, outer: RawEvent) -> bool:
    return event.start_ns < outer.end_ns and event.end_ns <= outer.end_ns + ROUNDING_NS
