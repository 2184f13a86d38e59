"""Sweep: time every point of a list, alone and with company, the way a training step would meet it.

In a step an operator runs once, after others that have pushed its operands, its code and Python's own state out of the
core's caches; called again and again it takes half the time when it is small. So points are timed in blocks: a block
holds a few dozen points of different families and like size and is a synthetic step, whose rounds call each point once
in a new random order. A block whose probe is off the best is measured again at the end while the budget lasts; of two
measurements the one with the better probe counts.

A setting is (threads, processes): rank 0 alone on all cores, alone on one, then all ranks on one core each, running the
same point at the same time as data-parallel ranks would. Every round of a block goes through all settings, so that what
company costs is a ratio of neighbours in time: in sweeps made minutes apart it was 1.00 one hour and 1.18 the next.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from ..rank import RankContext
from .chains import Chain, chains, time_chain
from .heap import hold_memory
from .point import Point, Prepared, operand_bytes
from .points import points
from .timing import Timing, repeat
from .together import SpinBarrier, decided, largest

BLOCK_POINTS = 32
PROBE_TOLERANCE = 1.10
"""A block whose probe takes longer than this times the best tenth of all probes is measured again."""
LEAST_ROUNDS, LEAST_ROUNDS_LONG, MOST_ROUNDS = 5, 3, 11
LONG_S = 0.02
"""A call longer than this is long: three rounds will do."""


@dataclass(frozen=True)
class Setting:
    """How a point runs: on `threads` threads in each of the first `processes` ranks; the other ranks sleep."""

    threads: int
    processes: int


def settings_of(context: RankContext) -> list[Setting]:
    """Rank 0 alone on each thread count of the task, then all ranks at once."""
    alone = [Setting(threads, 1) for threads in context.task["threads"]]
    return alone if context.world_size == 1 else [*alone, Setting(context.threads, context.world_size)]


class Probe:
    """One GEMM and one copy of fixed size on all cores: what the machine is worth right now.

    All cores, because one thread's speed tells little of that of threads that wait for one another; neither
    allocates, because the price of fresh memory has moods of its own.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._a, self._product = torch.ones(256, 256), torch.empty(256, 256)
        self._source, self._target = torch.ones(1 << 20), torch.empty(1 << 20)

    def __call__(self) -> float:
        """Seconds of both together, median of some."""
        torch.set_num_threads(self._threads)
        return Timing.of(repeat(self._once, budget_s=0.01)).time_s

    def _once(self) -> None:
        torch.mm(self._a, self._a, out=self._product)
        self._target.copy_(self._source)


@dataclass
class Block:
    """Points that are timed together, or one chain; `index` are their places in the list of points."""

    index: tuple[int, ...]
    chain: Chain | None = None
    quality_s: float = math.inf
    """The slower of the probes before and after its best measurement, over all ranks."""
    rows: Sequence[dict[str, Any]] = ()


def blocks_of(sizes: Sequence[int], *, seed: int = 0) -> list[Block]:
    """Blocks of points of like size in bytes, in random order; within a block neighbours by size of any family."""
    shuffled = random.Random(seed)
    order = list(range(len(sizes)))
    shuffled.shuffle(order)
    order.sort(key=lambda index: sizes[index].bit_length())
    blocks = [Block(tuple(order[start : start + BLOCK_POINTS])) for start in range(0, len(order), BLOCK_POINTS)]
    shuffled.shuffle(blocks)
    return blocks


def rounds_of(time_s: float, *, point_s: float) -> int:
    """How often a call of this length is timed when `point_s` may be spent on it."""
    least = LEAST_ROUNDS_LONG if time_s > LONG_S else LEAST_ROUNDS
    return max(least, min(MOST_ROUNDS, int(point_s / max(time_s, 1e-9))))


def slow_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Blocks whose probe is off the median of the best tenth, worst first."""
    best = sorted(block.quality_s for block in blocks)[: max(1, len(blocks) // 10)]
    limit_s = median(best) * PROBE_TOLERANCE
    return sorted((block for block in blocks if block.quality_s > limit_s), key=lambda block: -block.quality_s)


def mood_of(probes_s: Sequence[float]) -> float:
    """Log-standard deviation of a machine's speed from probes spread over its sweep, by their middle four fifths."""
    low, high = np.percentile(np.log(probes_s), [10, 90])
    return float((high - low) / (2 * 1.2816))


def repeat_slow(
    blocks: Sequence[Block],
    run: Callable[[Block], None],
    *,
    budget_s: float,
    decide: Callable[[bool], bool] = bool,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measure slow blocks again, worst first, one pass, while less than `budget_s` was spent; how many were.

    `decide` makes all ranks follow rank 0's view of the clock.
    """
    deadline = clock() + budget_s
    for number, block in enumerate(slow := slow_blocks(blocks)):
        if not decide(clock() < deadline):
            return number
        run(block)
    return len(slow)


def measure_points(context: RankContext) -> dict[str, Any]:
    """Rows for each setting, of the ranks that run in it; the parent merges those of several ranks."""
    hold_memory()
    torch.manual_seed(0)
    task = context.task
    wanted = points(quick=task["quick"])
    if task.get("only"):
        wanted = [point for point in wanted if any(name in point.call for name in task["only"])]
    blocks = blocks_of([operand_bytes(point) for point in wanted])
    blocks += [Block((len(wanted) + number,), chain) for number, chain in enumerate(_chains(task))]
    random.Random(1).shuffle(blocks)
    company = Company(context)
    probe = Probe(max(task["threads"]))
    done = 0
    probes_s: list[float] = []

    def probed() -> float:
        """Seconds of rank 0's probe; the others sleep meanwhile."""
        return largest(context, [probe() if context.rank == 0 else 0.0])[0]

    def run(block: Block) -> None:
        nonlocal done
        before_s = probed()
        rows = _time_chain(company, block) if block.chain else _time_block(company, block, wanted)
        quality_s = max(before_s, probed())
        probes_s.append(quality_s)
        if quality_s < block.quality_s:
            block.quality_s, block.rows = quality_s, rows
        done += len(block.index)
        context.progress(done)

    for block in blocks:
        run(block)
    repeated = repeat_slow(blocks, run, budget_s=task["extra_s"], decide=partial(decided, context))
    rows = [row for block in blocks for row in block.rows]
    return {
        "rows": rows,
        "blocks": len(blocks),
        "repeated": repeated,
        "noisy": len(slow_blocks(blocks)),
        "mood": mood_of(probes_s),
    }


class Company:
    """The ranks of a sweep, taking turns: who runs in a setting, and how the others wait."""

    def __init__(self, context: RankContext) -> None:
        self.context, self.settings = context, settings_of(context)
        self._barrier = SpinBarrier(context)

    def run(self, setting: Setting, body: Callable[[Callable[[], None]], None]) -> None:
        """`body(start)` in the ranks of `setting`, where `start()` lets them begin an operator together.

        Returns on all ranks when all are done. The others sleep in a collective: a rank that spins takes the core that
        is being measured.
        """
        everyone = setting.processes == self.context.world_size
        if self.context.rank < setting.processes:
            torch.set_num_threads(setting.threads)
            body(self._barrier.wait if everyone else _at_once)
        if everyone:
            self._barrier.wait()
        else:
            largest(self.context, [0.0])


def _at_once() -> None:
    """A lone rank waits for nobody."""


def _time_block(company: Company, block: Block, points: Sequence[Point]) -> list[dict[str, Any]]:
    context = company.context
    prepared = [Prepared(points[index]) for index in block.index]
    shuffled = random.Random(block.index[0])
    everything = list(range(len(prepared)))
    durations: dict[Setting, list[list[float]]] = {setting: [[] for _ in prepared] for setting in company.settings}

    def one_round(setting: Setting, chosen: Sequence[int]) -> None:
        order = shuffled.sample(chosen, len(chosen))  # drawn by every rank, so that all have the same

        def body(start: Callable[[], None]) -> None:
            for number in order:
                run = prepared[number].run
                prepared[number].touch()
                start()
                before = time.perf_counter()
                run()
                durations[setting][number].append(time.perf_counter() - before)

        company.run(setting, body)

    for setting in company.settings:
        one_round(setting, everything)  # warms up what is made on first use; not counted
        one_round(setting, everything)
    slowest_s = [max((of[number][-1] for of in durations.values() if of[number]), default=0.0) for number in everything]
    rounds = [rounds_of(time_s, point_s=context.task["point_s"]) for time_s in largest(context, slowest_s)]
    for number in range(1, max(rounds)):
        for setting in company.settings:
            one_round(setting, [point for point in everything if rounds[point] > number])
    return [
        _row(index, prepared[place].op, setting, Timing.of(durations[setting][place][1:]))
        for setting in company.settings
        if context.rank < setting.processes
        for place, index in enumerate(block.index)
    ]


def _chains(task: dict[str, Any]) -> list[Chain]:
    found = chains(quick=task["quick"])
    only = task.get("only")
    return [chain for chain in found if not only or any(name in chain.optimizer for name in only)]


def _time_chain(company: Company, block: Block) -> list[dict[str, Any]]:
    chain, context = block.chain, company.context
    assert chain is not None
    rows = []
    for setting in company.settings:

        def rounds(step_s: float, setting: Setting = setting) -> int:
            slowest_s = largest(context, [step_s])[0] if setting.processes > 1 else step_s
            return max(3, min(8, int(8 * context.task["point_s"] / slowest_s)))

        def body(start: Callable[[], None], setting: Setting = setting, rounds: Any = rounds) -> None:
            for op, timing in time_chain(chain, start, rounds):
                rows.append(_row(block.index[0], op, setting, timing))

        company.run(setting, body)
    return rows


def _row(index: int, op: Any, setting: Setting, timing: Timing) -> dict[str, Any]:
    return {
        "point": index, "op": op.op, "name": op.name, "direction": op.direction, "dtype": op.dtype,
        "b": op.b, "m": op.m, "n": op.n, "k": op.k, "shape": json.dumps(dict(op.shape), sort_keys=True),
        "flops": op.flops, "bytes_read": op.bytes_read, "bytes_written": op.bytes_written,
        "threads": setting.threads, "processes": setting.processes, "cache": "cold", "time_s": timing.time_s,
        "spread": timing.spread, "count": timing.count,
    }  # fmt: skip
