"""Sweep: time every point of a list in one context, in random order, between runs of a fixed probe.

Points are shuffled so that a slow quarter of an hour does not fall on one family. A block of points whose probe is off
the best is measured again at the end while the budget lasts; of the two measurements the one with the better probe
counts. Several processes run the same point at the same time, started together, as data-parallel ranks would.
"""

from __future__ import annotations

import json
import random
import time
from statistics import median
from typing import Any

import torch

from ..rank import RankContext
from .point import Point, Prepared
from .points import points
from .timing import Timing, repeat

_BLOCK = 32
PROBE_TOLERANCE = 1.10
"""A block whose probe takes longer than this times the best tenth of all probes is measured again."""


class Probe:
    """One GEMM and one copy of fixed size: what the machine is worth right now."""

    def __init__(self) -> None:
        self._a, self._b = torch.ones(256, 256), torch.ones(256, 256)
        self._source = torch.ones(1 << 21)

    def __call__(self) -> float:
        """Seconds of both together, median of a few."""
        return Timing.of(repeat(self._once, budget_s=0.004)).time_s

    def _once(self) -> None:
        torch.mm(self._a, self._b)
        self._source.clone()


def measure_points(context: RankContext) -> dict[str, Any]:
    """Rows for the task's `threads` list; with several ranks each point runs on all at once and ranks' medians are
    averaged by the parent."""
    torch.manual_seed(0)
    task = context.task
    wanted = points(quick=task["quick"])
    if task.get("only"):
        wanted = [point for point in wanted if any(name in point.call for name in task["only"])]
    order = list(range(len(wanted)))
    random.Random(0).shuffle(order)
    blocks = [order[start : start + _BLOCK] for start in range(0, len(order), _BLOCK)]
    probe = Probe()
    deadline = time.monotonic() + task["extra_s"]
    measured: dict[int, tuple[float, list[dict[str, Any]]]] = {}
    done = 0

    def run(number: int) -> None:
        nonlocal done
        before = probe()
        rows = [row for index in blocks[number] for row in _time_point(context, index, wanted[index])]
        quality = _worst(context, max(before, probe()))
        if number not in measured or quality < measured[number][0]:
            measured[number] = (quality, rows)
        done += len(blocks[number])
        context.progress(done)

    started = time.monotonic()
    for number in range(len(blocks)):
        run(number)
    # What the first pass took does not count against the time for repeats.
    deadline += time.monotonic() - started
    repeated = 0
    for number in _slow_blocks({number: quality for number, (quality, _) in measured.items()}):
        if not _agree(context, time.monotonic() < deadline):
            break
        run(number)
        repeated += 1
    rows = [row for _, (_, block) in sorted(measured.items()) for row in block]
    return {"rows": rows, "blocks": len(blocks), "repeated": repeated}


def _slow_blocks(quality: dict[int, float]) -> list[int]:
    best = sorted(quality.values())[: max(1, len(quality) // 10)]
    limit = median(best) * PROBE_TOLERANCE
    return sorted((n for n, value in quality.items() if value > limit), key=lambda n: -quality[n])


def _worst(context: RankContext, quality: float) -> float:
    """The slowest rank's probe, so that all ranks judge a block alike."""
    if context.world_size == 1:
        return quality
    from torch import distributed

    value = torch.tensor([quality], dtype=torch.float64)
    distributed.all_reduce(value, op=distributed.ReduceOp.MAX)
    return float(value.item())


def _agree(context: RankContext, wish: bool) -> bool:
    """Rank 0's wish, so that all ranks go on or stop together."""
    if context.world_size == 1:
        return wish
    from torch import distributed

    flag = torch.tensor([int(wish)])
    distributed.broadcast(flag, 0)
    return bool(flag.item())


def _time_point(context: RankContext, index: int, point: Point) -> list[dict[str, Any]]:
    prepared = Prepared(point)
    op = prepared.op
    rows = []
    for threads in context.task["threads"]:
        torch.set_num_threads(threads)
        context.barrier()
        timing = Timing.of(repeat(prepared.run, budget_s=context.task["point_s"]))
        rows.append(
            {
                "point": index, "op": op.op, "name": op.name, "direction": op.direction, "dtype": op.dtype,
                "b": op.b, "m": op.m, "n": op.n, "k": op.k, "shape": json.dumps(dict(op.shape), sort_keys=True),
                "flops": op.flops, "bytes_read": op.bytes_read, "bytes_written": op.bytes_written,
                "threads": threads, "processes": context.world_size, "time_s": timing.time_s,
                "spread": timing.spread, "count": timing.count,
            }
        )  # fmt: skip
    return rows


def merge(per_rank: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per point from the rows of the ranks that ran it together: the mean of their medians."""
    merged = []
    for rows in zip(*per_rank, strict=True):
        row = dict(rows[0])
        del row["point"]
        row["time_s"] = sum(other["time_s"] for other in rows) / len(rows)
        row["spread"] = max(other["spread"] for other in rows)
        merged.append(row)
    return merged
