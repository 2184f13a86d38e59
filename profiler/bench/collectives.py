"""Collectives between processes of this host: seconds over bytes, with the compute threads idle and busy.

Idle: the blocking call as training makes it from its main thread. Busy: the call is started asynchronously and the main
thread multiplies matrices until it is done, as backward does while a bucket is reduced. Bursts of all points take turns
in random order over several rounds, so that a slow second of the machine does not fall on one point.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from ..rank import RankContext
from .timing import Timing
from .together import largest

_QUICK_BYTES = (4, 1 << 12, 1 << 16, 1 << 19, 1 << 21, 1 << 23, 1 << 25)
_FULL_BYTES = (4, 256, *(1 << power for power in (12, 14, 16, *range(18, 27))))
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
ROUNDS = 4
_MOST_CALLS_PER_BURST = 40
_LOAD_SIDE = 96
"""The load's matrices: one product takes some tens of microseconds, which is how finely the end is seen."""


@dataclass
class Point:
    """One collective at one size, idle or busy, and what was measured of it on this rank."""

    kind: str
    size_bytes: int
    busy: bool
    start: Callable[[], list[Any]]
    """Starts the collective and returns what to wait for."""
    block: Callable[[], object]
    """The blocking form."""
    trips: int = 1
    """How many messages one after the other the blocking form sends."""
    calls: int = 1
    """Calls per burst, the same on all ranks."""
    durations_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    products: int = 0


def measure_collectives(context: RankContext) -> dict[str, Any]:
    """COLLECTIVES rows as rank 0 sees them (all ranks finish a collective together, up to its latency)."""
    torch.set_num_threads(1)
    sizes = _QUICK_BYTES if context.task["quick"] else _FULL_BYTES
    points = [
        point
        for kind in KINDS
        if kind != "send_recv" or context.world_size == 2
        for size in sizes
        for point in _points(kind, size, context)
    ]
    load = Load()
    _plan_bursts(points, context, load)
    shuffled = random.Random(0)
    alone_s = []
    for number in range(ROUNDS):
        shuffled.shuffle(points)
        context.barrier()
        alone_s.append(load.alone_s(0.02))
        for place, point in enumerate(points):
            # Ranks that left the last burst apart would put their distance into the first call of the next.
            context.barrier()
            _burst(point, load)
            context.progress((number * len(points) + place) // (2 * ROUNDS))
    points.sort(key=lambda point: (KINDS.index(point.kind), point.size_bytes, point.busy))
    return {"rows": [_row(point, context.world_size, sorted(alone_s)[len(alone_s) // 2]) for point in points]}


def _points(kind: str, size_bytes: int, context: RankContext) -> list[Point]:
    """`size_bytes` is the full buffer; the message for send_recv."""
    start, block, trips = _calls(kind, size_bytes, context)
    return [Point(kind, size_bytes, busy, start, block, trips) for busy in (False, True)]


def blocking_call(kind: str, size_bytes: int, context: RankContext) -> Callable[[], object]:
    """The collective as training's main thread calls it; there and back for send_recv."""
    return _calls(kind, size_bytes, context)[1]


def _calls(
    kind: str, size_bytes: int, context: RankContext
) -> tuple[Callable[[], list[Any]], Callable[[], object], int]:
    from torch import distributed as d

    ranks = context.world_size
    elements = max(1, size_bytes // 4)
    part = max(1, elements // ranks)
    full, own = torch.ones(part * ranks), torch.ones(part)
    if kind == "all_reduce":
        return lambda: [d.all_reduce(full, async_op=True)], lambda: d.all_reduce(full), 1
    if kind == "all_gather":
        return (
            lambda: [d.all_gather_into_tensor(full, own, async_op=True)],
            lambda: d.all_gather_into_tensor(full, own),
            1,
        )
    if kind == "reduce_scatter":
        return (
            lambda: [d.reduce_scatter_tensor(own, full, async_op=True)],
            lambda: d.reduce_scatter_tensor(own, full),
            1,
        )
    if kind == "broadcast":
        return lambda: [d.broadcast(full, 0, async_op=True)], lambda: d.broadcast(full, 0), 1
    outgoing, incoming, peer = torch.ones(elements), torch.ones(elements), 1 - context.rank

    def there_and_back() -> None:
        if context.rank == 0:
            d.send(outgoing, peer)
            d.recv(incoming, peer)
        else:
            d.recv(incoming, peer)
            d.send(outgoing, peer)

    # Busy, both directions go at once, as between two stages of a pipeline.
    return lambda: [d.isend(outgoing, peer), d.irecv(incoming, peer)], there_and_back, 2


def _plan_bursts(points: list[Point], context: RankContext, load: Load) -> None:
    """Fix how many calls a burst has, from one measured call each; all ranks take the slowest's."""
    first_s = []
    for point in points:
        for _ in range(2):
            context.barrier()
            before = time.perf_counter()
            _once(point, load)
            seconds = time.perf_counter() - before
        first_s.append(seconds)
    budget_s = context.task["collective_s"] / ROUNDS
    for point, seconds in zip(points, largest(context, first_s), strict=True):
        point.calls = max(2, min(_MOST_CALLS_PER_BURST, int(budget_s / max(seconds, 1e-6))))


def _once(point: Point, load: Load) -> int:
    """One collective; how many products the load made meanwhile."""
    if not point.busy:
        point.block()
        return 0
    return load.until_done(point.start())


def _burst(point: Point, load: Load) -> None:
    cpu = time.process_time()
    began = time.perf_counter()
    for _ in range(point.calls):
        before = time.perf_counter()
        point.products += _once(point, load)
        trips = 1 if point.busy else point.trips
        point.durations_s.append((time.perf_counter() - before) / trips)
    point.wall_s += time.perf_counter() - began
    point.cpu_s += time.process_time() - cpu


def _row(point: Point, ranks: int, alone_s: float) -> dict[str, Any]:
    timing = Timing.of(point.durations_s)
    slowdown = point.wall_s / point.products / alone_s if point.busy and point.products else None
    what = "async call with GEMMs in the main thread" if point.busy else "blocking call from Python"
    return {
        "kind": point.kind, "bytes": point.size_bytes, "ranks": ranks, "ranks_per_node": ranks, "backend": "gloo",
        "link": "loopback", "dtype": "fp32", "time_s": timing.time_s, "spread": timing.spread,
        "count": timing.count, "compute": "busy" if point.busy else "idle",
        "core_share": None if point.busy else point.cpu_s / point.wall_s,
        "compute_slowdown": None if slowdown is None else max(1.0, slowdown), "source": what,
    }  # fmt: skip


class Load:
    """The compute that a collective overlaps with: products of two small matrices on one thread."""

    def __init__(self) -> None:
        self._a = torch.ones(_LOAD_SIDE, _LOAD_SIDE)
        self._waiter = ThreadPoolExecutor(1)

    def alone_s(self, budget_s: float) -> float:
        """Seconds per product while no collective goes on."""
        began = time.perf_counter()
        products = 0
        while time.perf_counter() - began < budget_s:
            torch.mm(self._a, self._a)
            products += 1
        return (time.perf_counter() - began) / products

    def until_done(self, works: list[Any]) -> int:
        """Multiply until all of `works` are done; the number of products."""
        products = 0
        # Some of gloo's works (reduce-scatter, send, receive) count as completed only once somebody has waited.
        waits = [self._waiter.submit(work.wait) for work in works]
        while not all(wait.done() for wait in waits):
            torch.mm(self._a, self._a)
            products += 1
        for wait in waits:
            wait.result()
        return products
