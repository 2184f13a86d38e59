"""Collectives between processes of this host: seconds over bytes, with the compute threads idle and busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ..rank import RankContext
from .timing import Timing

_QUICK_BYTES = (4, 1 << 12, 1 << 16, 1 << 19, 1 << 21, 1 << 23, 1 << 25)
_FULL_BYTES = (4, 256, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26)  # fmt: skip
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")


def measure_collectives(context: RankContext) -> dict[str, Any]:
    """COLLECTIVES rows as rank 0 sees them (all ranks finish a blocking collective together, to its latency)."""
    rows = []
    torch.set_num_threads(1)
    sizes = _QUICK_BYTES if context.task["quick"] else _FULL_BYTES
    done = 0
    for kind in KINDS:
        if kind == "send_recv" and context.world_size != 2:
            continue
        for size in sizes:
            call = _call(kind, size, context)
            for busy in (False, True):
                rows.append(_row(context, kind, size, call, busy=busy))
            done += 1
            context.progress(done)
    return {"rows": rows}


def _call(kind: str, size_bytes: int, context: RankContext) -> Callable[[], object]:
    """One blocking call as training makes it. `size_bytes` is the full buffer; the message for send_recv."""
    from torch import distributed

    ranks = context.world_size
    elements = max(1, size_bytes // 4)
    part = max(1, elements // ranks)
    full = torch.ones(part * ranks)
    own = torch.ones(part)
    if kind == "all_reduce":
        return lambda: distributed.all_reduce(full)
    if kind == "all_gather":
        return lambda: distributed.all_gather_into_tensor(full, own)
    if kind == "reduce_scatter":
        return lambda: distributed.reduce_scatter_tensor(own, full)
    if kind == "broadcast":
        return lambda: distributed.broadcast(full, 0)
    message = torch.ones(elements)

    def there_and_back() -> None:
        # A round trip is two messages; the row holds half of it.
        if context.rank == 0:
            distributed.send(message, 1)
            distributed.recv(message, 1)
        else:
            distributed.recv(message, 0)
            distributed.send(message, 0)

    return there_and_back


def _row(context: RankContext, kind: str, size: int, call: Callable[[], object], *, busy: bool) -> dict[str, Any]:
    budget_s = context.task["collective_s"]
    trips = 2 if kind == "send_recv" else 1
    call()
    context.barrier()
    load = _Load() if busy else None
    alone_s = load.rate_s(0.05) if load else None
    context.barrier()
    if load:
        load.start()
    # All ranks make the same number of calls, which rank 0's first timing decides.
    count = _repetitions(call, budget_s, context)
    cpu = time.process_time()
    began = time.perf_counter()
    durations = []
    for _ in range(count):
        before = time.perf_counter()
        call()
        durations.append((time.perf_counter() - before) / trips)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    slowed_s = load.stop() if load else None
    timing = Timing.of(durations)
    return {
        "kind": kind, "bytes": size, "ranks": context.world_size, "ranks_per_node": context.world_size,
        "backend": "gloo", "link": "loopback", "dtype": "fp32", "time_s": timing.time_s, "spread": timing.spread,
        "count": timing.count, "compute": "busy" if busy else "idle",
        "core_share": None if busy else min(cpu_s / wall_s, 8.0),
        "compute_slowdown": slowed_s / alone_s if load and alone_s and slowed_s else None,
        "source": "blocking call from Python",
    }  # fmt: skip


def _repetitions(call: Callable[[], object], budget_s: float, context: RankContext) -> int:
    from torch import distributed

    before = time.perf_counter()
    call()
    call()
    each = (time.perf_counter() - before) / 2
    count = torch.tensor([max(4, min(200, int(budget_s / max(each, 1e-6))))])
    distributed.broadcast(count, 0)
    return int(count.item())


class _Load:
    """A GEMM loop in a thread of its own: the compute that a collective overlaps with."""

    def __init__(self) -> None:
        self._a = torch.ones(192, 192)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._calls = 0
        self._seconds = 0.0

    def rate_s(self, budget_s: float) -> float:
        """Seconds per GEMM with nothing else going on in this process."""
        began = time.perf_counter()
        calls = 0
        while time.perf_counter() - began < budget_s:
            torch.mm(self._a, self._a)
            calls += 1
        return (time.perf_counter() - began) / calls

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        torch.set_num_threads(1)
        began = time.perf_counter()
        while not self._stop.is_set():
            torch.mm(self._a, self._a)
            self._calls += 1
        self._seconds = time.perf_counter() - began

    def stop(self) -> float | None:
        """Seconds per GEMM while it ran; None when none was finished."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        return self._seconds / self._calls if self._calls else None
