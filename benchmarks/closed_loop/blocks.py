"""One rank of a measured case: blocks of timed steps, each between two runs of a fixed probe.

`python -m benchmarks.closed_loop.blocks SCRATCH`, started by `foretrace.profiler.launch`. Rank 0 runs the probe while
the others wait, so that it tells how fast the machine is at that moment and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from foretrace.datasets.environment import usable_cores
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.profiler.rank import RankContext, rank_main

TOLERANCE = 1.05
QUIET_BLOCKS = 3
REPEATS = 3
"""A block with a probe over the tolerance is repeated this often; `QUIET_BLOCKS * (1 + REPEATS)` blocks at most."""


class Probe:
    """One GEMM and one copy of fixed size on all cores, neither allocating.

    All cores, because steps use them and one thread's speed tells little of two threads' (correlation 0.5); a copy of
    4 MiB, because larger ones vary with the neighbours' use of the shared cache, which our steps do not follow
    (correlation with the step's time 0.3 to 0.9 for this one, -0.3 to 0.5 for 16 MiB).
    """

    def __init__(self) -> None:
        import torch

        self._a, self._product = torch.ones(512, 512), torch.empty(512, 512)
        self._source, self._target = torch.ones(1 << 20), torch.empty(1 << 20)

    def __call__(self) -> tuple[float, float]:
        """(GEMM seconds, copy seconds), medians of fifteen."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(usable_cores().usable)
        gemm = self._median(lambda: torch.mm(self._a, self._a, out=self._product))
        copy = self._median(lambda: self._target.copy_(self._source))
        torch.set_num_threads(threads)
        return gemm, copy

    @staticmethod
    def _median(call: Any) -> float:
        call()
        durations = []
        for _ in range(15):
            before = time.perf_counter()
            call()
            durations.append(time.perf_counter() - before)
        return median(durations)


def off_by(before: Sequence[float], after: Sequence[float], best: Sequence[float]) -> float:
    """The worst of a block's probes over the best one of its kind; 1 is as quiet as it gets."""
    return max(value / limit for pair in (before, after) for value, limit in zip(pair, best, strict=True))


def measure(context: RankContext) -> None:
    """Blocks of steps until enough are quiet or repeats are used up; then one step whose tensors are counted."""
    import torch
    from foretrace.datasets.workloads.step import make_step
    from foretrace.profiler.storage import StorageTracker

    task = context.task
    plan = Plan.from_dict(task["plan"])
    torch.set_num_threads(context.threads)
    context.init_process_group()
    step = make_step(load(task["reference"], **task["settings"]), plan, rank=context.rank)
    for _ in range(3):
        step.run()
    probe = Probe()
    best = task["best_probe"]
    count = _steps_per_block(context, step, task["block_s"])
    blocks: list[dict[str, Any]] = []
    quiet = 0
    while len(blocks) < QUIET_BLOCKS * (1 + REPEATS) and quiet < QUIET_BLOCKS:
        before = _probed(context, probe)
        context.barrier()
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            step.run()
            seconds.append(time.perf_counter() - start)
        after = _probed(context, probe)
        off = off_by(before, after, best)
        blocks.append({"before": before, "after": after, "off": off, "seconds": seconds})
        quiet += off <= TOLERANCE
    with StorageTracker(step.module, step.optimizer, resizable=plan.fsdp > 1) as tracker:
        step.run()
    context.result(blocks=blocks, peak=tracker.peak())


def _steps_per_block(context: RankContext, step: Any, block_s: float) -> int:
    import torch
    from torch import distributed

    before = time.perf_counter()
    step.run()
    step.run()
    each = (time.perf_counter() - before) / 2
    count = torch.tensor([max(3, min(60, round(block_s / each)))])
    if context.world_size > 1:
        distributed.broadcast(count, 0)
    return int(count.item())


def _probed(context: RankContext, probe: Probe) -> list[float]:
    """Rank 0's probe, known to all ranks, so that all judge the block alike."""
    import torch
    from torch import distributed

    context.barrier()
    values = torch.tensor(probe() if context.rank == 0 else (0.0, 0.0), dtype=torch.float64)
    if context.world_size > 1:
        distributed.broadcast(values, 0)
    return values.tolist()


if __name__ == "__main__":
    rank_main(measure)
