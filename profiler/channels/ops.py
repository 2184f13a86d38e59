"""The ops channel: unique op rows with times, every call as an event, and the host time between ops.

Of the events that contain each other on a thread, the outermost one that is an op of the canonical set is the row, with
its inclusive time; what lies inside is part of it and not counted again. The time of a composite operator around it
counts as host time only. From an op's time is taken what recording the events inside of it cost, as measured at
warm-up.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ...datasets.ops import Op, is_known
from ...datasets.schemas import op_row
from .channel import Rows, StepWindow, StepWindows, spread
from .events import USER_SCOPE, Nesting, RawEvent, nest
from .identity import Identities, is_composite, is_operator
from .recording import Recording

BACKWARD, OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer."


@dataclass
class Taken:
    """One call that is a row: where it is among the nested events, and what it cost."""

    index: int
    step: int
    phase: str
    time_s: float
    thread: int
    start_s: float
    end_s: float
    device: str = "cpu"


@dataclass
class _Row:
    """All calls of one op in one phase."""

    op: Op
    phase: str
    device: str
    times_s: list[float] = field(default_factory=list)


class OpsChannel:
    """Needs torch; reads the session's `Recording`, which it starts and stops with itself."""

    name = "ops"

    def __init__(self, recording: Recording, *, rank: int, processes: int = 1) -> None:
        self._recording = recording
        self._rank = rank
        self._processes = processes
        self._identities = Identities()
        self._rows: dict[tuple[Op, str, str], int] = {}
        self._table: list[_Row] = []
        self._host: dict[tuple[str, str], list[tuple[float, int, int]]] = defaultdict(list)  # by kind and phase
        self._steps = 0
        self._outside = 0
        self._unnamed = 0
        self._with_trace_only = False

    def unavailable(self) -> str | None:
        """None, or what torch's profiler lacks here."""
        return self._recording.unavailable()

    def start(self) -> None:
        """The recording is started by the session, once for all its readers."""

    def stop(self) -> None:
        """Likewise stopped by the session."""

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """Events of the window; op and host rows come at the end, over all windows."""
        if self._recording.gave_way:
            return {}
        nesting = nest(self._recording.events)
        timed = [step for step in steps if not step.described]
        self._with_trace_only |= bool(steps) and not timed
        kept = timed or list(steps)
        taken = self.take(nesting, steps)
        self._learn(nesting, taken, steps)
        starts = {step.step: step for step in kept}
        events: list[dict[str, Any]] = []
        places: dict[int, int] = {}
        taken_at = {one.index: one for one in taken}
        windows = StepWindows(kept)
        for index, event in enumerate(nesting.events):
            step = windows.of(event.start_ns)
            one = taken_at.get(index)
            if event.scope == USER_SCOPE and event.device == "cpu" and not event.name.startswith("gloo:"):
                self._unnamed += event.name == "unknown"
                if step is not None and event.end_ns / 1e9 <= starts[step].end_s + 1e-3:
                    places[index] = len(events)
                    events.append(self._event(event, step, "annotation", None, self._around(nesting, index, places)))
                continue
            if event.device != "cpu" or one is None or one.step not in starts:
                continue
            op = self._identities.of(event)
            if op is None:
                continue
            row = self._row_of(op, one)
            self._table[row].times_s.append(one.time_s)
            events.append(self._event(event, one.step, "op", row, self._around(nesting, index, places)))
        self._steps += len(kept)
        self._note_host(nesting, taken, kept)
        return {"events": events}

    def take(self, nesting: Nesting, steps: Sequence[StepWindow]) -> list[Taken]:
        """The calls that are rows, in the order of the events; calls outside of all steps are only counted."""
        windows = StepWindows(steps)
        children: dict[int, list[int]] = defaultdict(list)
        for index, parent in enumerate(nesting.parents):
            if parent is not None:
                children[parent].append(index)
        device_s = _device_seconds(nesting)
        covered = [False] * len(nesting.events)
        phases: list[str] = []
        taken = []
        for index, event in enumerate(nesting.events):
            parent = nesting.parents[index]
            phases.append(_phase(event.name, phases[parent] if parent is not None else None))
            if parent is not None and covered[parent]:
                covered[index] = True
                continue
            if not is_operator(event) or is_composite(event.name):
                continue
            if not is_known(event.name) and any(is_operator(nesting.events[child]) for child in children[index]):
                continue
            covered[index] = True
            step = windows.of(event.start_ns)
            if step is None:
                self._outside += 1
                continue
            on_device_s = device_s.get(index)
            time_s = on_device_s if on_device_s is not None else self._without_events(event, nesting.descendants[index])
            device = "cpu" if on_device_s is None else "cuda"
            taken.append(
                Taken(
                    index, step, phases[index], time_s, event.thread, event.start_ns / 1e9, event.end_ns / 1e9, device
                )
            )
        return taken

    def _without_events(self, event: RawEvent, inside: int) -> float:
        """Seconds of an event without what recording the events inside of it cost.

        Never less than its share if all of them were of one length: the cost is a mean, and some are cheaper.
        """
        inclusive_s = event.duration_ns / 1e9
        return max(inclusive_s / (inside + 1), inclusive_s - inside * (self._recording.event_s or 0.0))

    def last_rows(self) -> Rows:
        """Op rows and host rows over all windows."""
        import torch

        threads = torch.get_num_threads()
        software = f"torch {torch.__version__}"
        ops = [
            op_row(
                row.op, phase=row.phase, device=row.device, threads=threads, processes=self._processes,
                time_s=median(row.times_s), spread=spread(row.times_s),
                count=max(1, round(len(row.times_s) / max(1, self._steps))), rank=self._rank, software=software,
                source="profile",
            )
            for row in self._table
        ]  # fmt: skip
        host = [
            {
                "kind": kind, "phase": phase, "ops": round(median(each[1] for each in found)),
                "views": round(median(each[2] for each in found)), "time_s": median(each[0] for each in found),
                "spread": spread([each[0] for each in found]), "source": "profile",
            }
            for (kind, phase), found in self._host.items()
        ]  # fmt: skip
        return {"ops": ops, "host": host}

    def facts(self) -> dict[str, Any]:
        """How the rows came about: share of joined calls, cost of an event, what lay outside of all steps."""
        if not self._steps:
            return {"reason": self._recording.problem or "the run ended before a step of the active window did"}
        identities = self._identities
        calls = identities.joined + identities.guessed
        found: dict[str, Any] = {
            "steps": self._steps,
            "join_share": identities.joined / calls if calls else None,
            "joined_by_id": f"{identities.described_joined} of {identities.described} calls of the described step",
            "event_cost_s": self._recording.event_s,
            "ops_outside_steps": self._outside,
        }
        if self._with_trace_only:
            found["note"] = "one step only: op times include what the execution trace costs; use --active 2 or more"
        if self._unnamed:
            found["unnamed_regions"] = self._unnamed
        if self._recording.repaired_names:
            found["repaired_names"] = self._recording.repaired_names
        if self._recording.problem:
            found["problem"] = self._recording.problem
        return found

    def _learn(self, nesting: Nesting, taken: list[Taken], steps: Sequence[StepWindow]) -> None:
        described = {step.step for step in steps if step.described}
        for one in taken:
            if one.step in described:
                event = nesting.events[one.index]
                self._identities.learn(event, self._recording.nodes.get(event.identity))

    def _row_of(self, op: Op, one: Taken) -> int:
        key = (op, one.phase, one.device)
        if key not in self._rows:
            self._rows[key] = len(self._table)
            self._table.append(_Row(op, one.phase, one.device))
        return self._rows[key]

    def _note_host(self, nesting: Nesting, taken: list[Taken], steps: Sequence[StepWindow]) -> None:
        """Time of the stepping thread between ops, by the phase of the op that follows.

        `step` rows are the host's own; `wait` rows are the part in which a collective ran on another thread.
        """
        counts: dict[int, int] = defaultdict(int)
        for one in taken:
            counts[one.thread] += 1
        if not counts:
            return
        main = max(counts, key=lambda thread: counts[thread])
        event_s = self._recording.event_s or 0.0
        busy = _union(event for event in nesting.events if event.name.startswith("gloo:") and event.thread != main)
        for step in steps:
            inside = [one for one in taken if one.step == step.step and one.thread == main]
            gaps: dict[str, float] = defaultdict(float)
            waits: dict[str, float] = defaultdict(float)

            def note(phase: str, start_s: float, end_s: float, gaps: Any = gaps, waits: Any = waits) -> None:
                if end_s > start_s:
                    waiting_s = _overlap(busy, start_s, end_s)
                    gaps[phase] += end_s - start_s - waiting_s
                    waits[phase] += waiting_s

            ops: dict[str, list[int]] = defaultdict(lambda: [0, 0])
            last_s = step.start_s
            for one in inside:
                note(one.phase, last_s, one.start_s)
                op = self._identities.of(nesting.events[one.index])
                ops[one.phase][op is not None and op.family == "view"] += 1
                last_s = one.end_s
            if inside:
                note(inside[-1].phase, last_s, step.end_s)
            # Every event costs once, inside of an op or between two.
            for phase, (plain, views) in ops.items():
                cost_s = event_s * (plain + views)
                self._host["step", phase].append((max(0.0, gaps[phase] - cost_s), plain, views))
                if busy:
                    self._host["wait", phase].append((waits[phase], plain, views))

    def _event(self, event: Any, step: int, category: str, row: int | None, parent: int | None) -> dict[str, Any]:
        return {
            "rank": self._rank, "step": step, "stream": f"thread {event.thread}", "start_s": event.start_ns / 1e9,
            "end_s": event.end_ns / 1e9, "name": event.name, "category": category, "row": row, "parent": parent,
        }  # fmt: skip

    @staticmethod
    def _around(nesting: Nesting, index: int, places: dict[int, int]) -> int | None:
        parent = nesting.parents[index]
        while parent is not None:
            if parent in places:
                return places[parent]
            parent = nesting.parents[parent]
        return None


def local_processes() -> int:
    """Ranks of this host that run at the same time, 1 when nobody says otherwise."""
    value = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
    return int(value) if value.isdigit() and int(value) > 0 else 1


def _phase(name: str, around: str | None) -> str:
    if around in ("backward", "optimizer"):
        return around
    if name.startswith(BACKWARD):
        return "backward"
    return "optimizer" if name.startswith(OPTIMIZER) else "forward"


def _union(events: Iterable[RawEvent]) -> list[tuple[float, float]]:
    """Intervals in which at least one of the events ran, in seconds, in order."""
    merged: list[tuple[float, float]] = []
    for event in sorted(events, key=lambda one: one.start_ns):
        start_s, end_s = event.start_ns / 1e9, event.end_ns / 1e9
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_s, merged[-1][1]))
        else:
            merged.append((start_s, end_s))
    return merged


def _overlap(intervals: Sequence[tuple[float, float]], start_s: float, end_s: float) -> float:
    """Seconds of [start, end] that lie in the intervals."""
    found = 0.0
    for place in range(max(0, bisect_right(intervals, (start_s, float("inf"))) - 1), len(intervals)):
        if intervals[place][0] >= end_s:
            break
        found += max(0.0, min(end_s, intervals[place][1]) - max(start_s, intervals[place][0]))
    return found


def _device_seconds(nesting: Nesting) -> dict[int, float]:
    """By event: seconds of the device work that it or an event inside of it launched."""
    by_identity = {event.identity: index for index, event in enumerate(nesting.events) if event.identity}
    found: dict[int, float] = defaultdict(float)
    for event in nesting.events:
        if event.device == "cpu":
            continue
        at: int | None = by_identity.get(event.launched_by)
        while at is not None:
            found[at] += event.duration_ns / 1e9
            at = nesting.parents[at]
    return found
