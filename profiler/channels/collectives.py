"""The collectives channel: what was sent between ranks, how many bytes, how long.

gloo says nothing of its own: a collective is an annotation `gloo:all_reduce` on a worker thread with the tensor's dims
(pytorch/pytorch#131462), and a reduce-scatter is written as an all-reduce. The call on the main thread (`c10d::...`)
tells which it was. NCCL writes `record_param_comms` with everything in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from statistics import median
from typing import Any

from ...datasets.ops import DTYPE_BYTES, dtype_name
from .channel import Rows, StepWindow, StepWindows, spread
from .events import RawEvent
from .recording import Recording

CALLS = {
    "allreduce_": ("all_reduce", "all_reduce"),
    "allreduce_coalesced_": ("all_reduce", "all_reduce"),
    "_allgather_base_": ("all_gather", "all_gather"),
    "allgather_": ("all_gather", "all_gather"),
    "allgather_into_tensor_coalesced_": ("all_gather", "all_gather"),
    "_reduce_scatter_base_": ("reduce_scatter", "all_reduce"),
    "reduce_scatter_": ("reduce_scatter", "all_reduce"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "all_reduce"),
    "broadcast_": ("broadcast", "broadcast"),
    "alltoall_base_": ("all_to_all", "all_to_all"),
    "alltoall_": ("all_to_all", "all_to_all"),
    "barrier": ("barrier", "barrier"),
    "send": ("send_recv", "send"),
    "recv_": ("send_recv", "recv"),
}
"""`c10d::` call -> (our kind, how gloo's annotation for it is called)."""

GLOO = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "all_to_all": "all_to_all", "barrier": "barrier", "send": "send_recv",
    "recv": "send_recv", "reduce": "all_reduce",
}  # fmt: skip
NCCL = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "alltoall": "all_to_all", "barrier": "barrier", "send": "send_recv", "recv": "send_recv",
}  # fmt: skip


class CollectivesChannel:
    """Reads the session's `Recording`. `group_sizes` are the sizes of the process groups that this rank is in."""

    name = "collectives"

    def __init__(self, recording: Recording, *, rank: int, group_sizes: Any = None) -> None:
        self._recording = recording
        self._rank = rank
        self._group_sizes = group_sizes or group_sizes_of_process
        self._rows: dict[tuple[Any, ...], int] = {}
        self._times_s: dict[int, list[float]] = defaultdict(list)
        self._steps = 0
        self._seen = 0
        self._unknown_group = 0

    def unavailable(self) -> str | None:
        """None, or what torch's profiler lacks here."""
        return self._recording.unavailable()

    def start(self) -> None:
        """The recording is started by the session."""

    def stop(self) -> None:
        """Likewise stopped."""

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """Events of the window; rows come at the end. The described step counts when it is the only one."""
        if self._recording.gave_way:
            return {}
        kept = [step for step in steps if not step.described] or list(steps)
        windows = StepWindows(kept)
        self._steps += len(kept)
        sizes = self._group_sizes()
        kinds = kinds_of_annotations(self._recording.events)
        events = []
        for sequence, event in enumerate(sorted(self._recording.events, key=lambda one: one.start_ns)):
            found = read(event, kinds.get(id(event)), sizes)
            if found is None:
                continue
            step = windows.of(event.start_ns)
            if step is None:
                continue
            self._seen += 1
            row = None
            if found["ranks"] is None:
                self._unknown_group += 1
            else:
                key = tuple(sorted(found.items()))
                row = self._rows.setdefault(key, len(self._rows))
                self._times_s[row].append(event.duration_ns / 1e9)
            events.append(
                {
                    "rank": self._rank, "step": step, "stream": f"{found['backend']} thread {event.thread}",
                    "start_s": event.start_ns / 1e9, "end_s": event.end_ns / 1e9, "name": event.name,
                    "category": "collective", "row": row, "sequence": sequence,
                }
            )  # fmt: skip
        return {"events": events}

    def last_rows(self) -> Rows:
        """One row per kind, size and group size."""
        rows = []
        for key, row in self._rows.items():
            times_s = self._times_s[row]
            rows.append(
                {
                    **dict(key), "time_s": median(times_s), "spread": spread(times_s),
                    "count": max(1, round(len(times_s) / max(1, self._steps))), "compute": "busy", "rank": self._rank,
                    "source": "profile",
                }
            )  # fmt: skip
        return {"collectives": rows}

    def facts(self) -> dict[str, Any]:
        """What could not be read."""
        if not self._steps:
            return {"reason": self._recording.problem or "the run ended before a step of the active window did"}
        if not self._seen:
            return {"reason": "no collective ran in the active window"}
        found: dict[str, Any] = {"calls": self._seen}
        if self._unknown_group:
            found["problem"] = (
                f"{self._unknown_group} of {self._seen} calls have no known group size (gloo does not tell the group "
                "and this rank is in groups of several sizes); they are events without a row"
            )
        return found


def kinds_of_annotations(events: Sequence[RawEvent]) -> dict[int, tuple[str, int]]:
    """By `id` of a gloo annotation: (kind, elements of the full buffer) as its call on the main thread tells them."""
    waiting: dict[str, list[RawEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda one: one.start_ns):
        if event.name.startswith("gloo:"):
            waiting[event.name[len("gloo:") :]].append(event)
    found: dict[int, tuple[str, int]] = {}
    for call in sorted(events, key=lambda one: one.start_ns):
        if not call.name.startswith("c10d::"):
            continue
        kind, annotation = CALLS.get(call.name[len("c10d::") :], (None, ""))
        if kind is None:
            continue
        queue = waiting[annotation]
        # The work starts after its call does; the profiler may have begun in between.
        while queue and queue[0].start_ns < call.start_ns:
            queue.pop(0)
        if queue:
            elements = max((_numel(shape) for shape in call.shapes), default=0)
            found[id(queue.pop(0))] = (kind, elements)
    return found


def read(event: RawEvent, told: tuple[str, int] | None, group_sizes: Sequence[int]) -> dict[str, Any] | None:
    """Kind, bytes (the full buffer), ranks (None when unknown), backend and dtype of a collective; None for others."""
    if event.name == "record_param_comms":
        return _nccl(event)
    if not event.name.startswith("gloo:"):
        return None
    name = event.name[len("gloo:") :]
    kind = told[0] if told else GLOO.get(name)
    if kind is None:
        return None
    sizes = {size for size in group_sizes if size > 1}
    ranks = sizes.pop() if len(sizes) == 1 else None
    dtype = dtype_name(event.dtypes[0]) if event.dtypes and event.dtypes[0] not in ("", "TensorList") else None
    elements = sum(_numel(shape) for shape in event.shapes)
    if kind == "all_gather":  # the annotation has this rank's share
        full = told[1] if told else 0
        if full > elements and elements:
            ranks = full // elements
        elements = elements * ranks if ranks else max(full, elements)
    size_bytes = 0 if kind == "barrier" else elements * DTYPE_BYTES.get(dtype or "fp32", 4)
    return {
        "kind": kind,
        "bytes": size_bytes,
        "ranks": 2 if kind == "send_recv" else ranks,
        "backend": "gloo",
        "dtype": dtype,
    }


def _nccl(event: RawEvent) -> dict[str, Any] | None:
    extra = {key.lower(): str(value).strip('"') for key, value in event.extra.items()}
    name = extra.get("collective name", "").lower().strip("_")
    kind = next((ours for theirs, ours in NCCL.items() if theirs in name.replace("_", "")), None)
    if kind is None:
        return None
    dtype = dtype_name(extra["dtype"]) if extra.get("dtype") else None
    elements = max(_int(extra.get("in msg nelems")) or 0, _int(extra.get("out msg nelems")) or 0)
    ranks = 2 if kind == "send_recv" else _int(extra.get("group size"))
    return {
        "kind": kind, "bytes": elements * DTYPE_BYTES.get(dtype or "fp32", 4), "ranks": ranks, "backend": "nccl",
        "dtype": dtype,
    }  # fmt: skip


def group_sizes_of_process() -> list[int]:
    """Sizes of the process groups that this process is in; empty without torch.distributed."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return []
    from torch.distributed import distributed_c10d

    try:
        groups = distributed_c10d._world.pg_map
        return [distributed.get_world_size(group) for group in groups]
    except (AttributeError, RuntimeError, ValueError):
        return [distributed.get_world_size()]


def _numel(shape: Any) -> int:
    """Elements of a shape, or of a list of shapes; 0 for what has none."""
    if not isinstance(shape, list | tuple) or not shape:
        return 0
    if isinstance(shape[0], list | tuple):
        return sum(_numel(one) for one in shape)
    return prod(shape)


def _int(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
