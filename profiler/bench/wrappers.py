"""Host time of parallel wrappers: what a wrapped tiny model's step takes beyond its ops and its collectives.

All variants of a step (plain, DDP, FSDP2, ...) and the collectives' latencies are measured in one pair of ranks, taking
turns over several rounds: a difference of two medians is worth something only when both saw the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from ...datasets.plan import Plan
from ...datasets.workloads.spec import Workload
from ...datasets.workloads.step import TrainingStep, make_step
from ..rank import RankContext
from .host import OpCounter, tiny
from .timing import Timing
from .together import largest

MODELS = ("gpt", "mlp")
ROUNDS = 5
_STEPS_PER_ROUND, _CALLS_PER_ROUND = 5, 20
_MICRO = 4
PLANS = {
    "plain": Plan(),
    "dp": Plan(dp=2),
    "fsdp": Plan(fsdp=2),
    "tp": Plan(tp=2),
    "recompute": Plan(recompute="full"),
    "bf16": Plan(precision="bf16"),
    "accumulate": Plan(micro_batches=_MICRO),
    "pp": Plan(pp=2, micro_batches=_MICRO, schedule="gpipe"),
}
_LATENCY_ELEMENTS = 512


@dataclass
class Variant:
    """One model under one plan: its step and what it took."""

    step: TrainingStep
    durations_s: list[float] = field(default_factory=list)
    time_s: float = 0.0
    """Median over steps of the slowest rank."""
    ops: int = 1
    collectives: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    blocks: int = 1


def measure_wrappers(context: RankContext) -> dict[str, Any]:
    """HOST rows of wrappers, two ranks of one thread each."""
    torch.set_num_threads(1)
    variants = {(plan, model): _variant(tiny(model), PLANS[plan], context) for plan in PLANS for model in MODELS}
    calls = _latency_calls(context)
    latencies: dict[str, list[float]] = {kind: [] for kind in calls}
    for number in range(ROUNDS):
        for place, variant in enumerate(variants.values()):
            for _ in range(_STEPS_PER_ROUND):
                context.barrier()
                variant.durations_s.append(_seconds(variant.step.run))
            context.progress(number * len(variants) + place)
        for kind, call in calls.items():
            context.barrier()
            latencies[kind] += [_seconds(call) for _ in range(_CALLS_PER_ROUND)]
    for variant in variants.values():
        variant.time_s = median(largest(context, variant.durations_s))
    latency_s = {kind: Timing.of(found).time_s for kind, found in latencies.items()}
    latency_s["send_recv"] /= 2
    return {"rows": wrapper_rows(variants, latency_s)}


def wrapper_rows(variants: dict[tuple[str, str], Variant], latency_s: dict[str, float]) -> list[dict[str, Any]]:
    """HOST rows from the measured variants, by plan and model, and the latency of each collective."""
    extra: dict[str, list[float]] = {
        kind: [] for kind in ("fsdp_unit", "dtensor_op", "checkpoint_block", "autocast_op", "pipeline_action")
    }
    ddp = []
    for model in MODELS:
        of = {plan: variants[plan, model] for plan in PLANS}
        per_op_s = of["plain"].time_s / of["plain"].ops

        def beyond(plan: str, of: dict[str, Variant] = of, per_op_s: float = per_op_s) -> float:
            """Seconds of a step beyond its ops at the plain rate and its collectives at their latency."""
            waits_s = sum(count * latency_s[kind] for kind, count in of[plan].collectives.items())
            return of[plan].time_s - of[plan].ops * per_op_s - waits_s

        # Each parameter's gradient is scaled into its bucket and copied back, which are ops of their own.
        parameters = of["dp"].parameters
        spent_s = of["plain"].time_s + latency_s["all_reduce"] + 2 * parameters * per_op_s
        ddp.append((parameters, of["dp"].time_s - spent_s))
        extra["fsdp_unit"].append(beyond("fsdp") / (of["fsdp"].blocks + 1))
        extra["dtensor_op"].append(beyond("tp") / of["tp"].ops)
        extra["checkpoint_block"].append(beyond("recompute") / of["recompute"].blocks)
        extra["autocast_op"].append(beyond("bf16") / of["bf16"].ops)
        # Two stages of half the work each: (m + 1) of m micro-batches' halves, and a message each way at the turn.
        ideal_s = of["accumulate"].time_s / 2 * (_MICRO + 1) / _MICRO + 2 * latency_s["send_recv"]
        extra["pipeline_action"].append((of["pp"].time_s - ideal_s) / (2 * (_MICRO + 1)))
    each_s, once_s = line_of(ddp)
    sources = {
        "fsdp_unit": "step under FSDP2 less its ops at the plain rate less collectives at latency, per unit",
        "dtensor_op": "step under tensor parallel less its ops at the plain rate less all-reduces at latency, per op",
        "checkpoint_block": "step with full recompute less its ops at the plain rate, per block",
        "autocast_op": "step under bf16 autocast less its ops at the plain rate, per op",
        "pipeline_action": "two-stage GPipe step less (m + 1) / 2m of the plain step less two messages, per action",
    }
    told = "step under DDP less plain step, all-reduce latency and two ops a parameter"
    return [
        *(_row(kind, median(found), sources[kind]) for kind, found in extra.items()),
        _row("ddp_parameter", each_s, f"{told}: slope over parameters"),
        _row("ddp_step", once_s, f"{told}: intercept"),
    ]


def line_of(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Slope and intercept of a line through two points (parameters, seconds), neither below 0: what noise would make
    negative becomes 0 and the other carries the mean."""
    (small, low_s), (large, high_s) = sorted(points)
    slope_s = (high_s - low_s) / (large - small) if large > small else 0.0
    intercept_s = low_s - slope_s * small
    if slope_s < 0:
        return 0.0, max(0.0, (low_s + high_s) / 2)
    if intercept_s < 0:
        return max(0.0, (low_s + high_s) / (small + large)), 0.0
    return slope_s, intercept_s


def _row(kind: str, seconds: float, source: str) -> dict[str, Any]:
    return {
        "kind": kind, "workload": ", ".join(MODELS), "phase": None, "ops": None, "views": None,
        "time_s": max(0.0, seconds), "spread": None, "source": source,
    }  # fmt: skip


def _variant(workload: Workload, plan: Plan, context: RankContext) -> Variant:
    from ...datasets.workloads.parallel import blocks

    step = make_step(workload, plan, rank=context.rank if plan.world_size > 1 else 0)
    for _ in range(3):
        step.run()
    counter = OpCounter()
    if plan.pp == 1 and plan.dp == 1:
        with counter:
            step.run()
    else:
        step.run()  # DDP's reducer and the schedule do not go through a dispatch mode; all ranks step alike
    collectives = {
        "all_gather": sum(n for name, n in counter.collectives.items() if "gather" in name),
        "reduce_scatter": sum(n for name, n in counter.collectives.items() if "scatter" in name),
        "all_reduce": sum(n for name, n in counter.collectives.items() if "allreduce" in name or "all_reduce" in name),
    }
    return Variant(
        step=step,
        ops=max(1, sum(counter.ops.values())),
        collectives={kind: count for kind, count in collectives.items() if count},
        parameters=sum(1 for _ in step.module.parameters()),
        blocks=max(1, len(blocks(workload.build()))),
    )


def _latency_calls(context: RankContext) -> dict[str, Callable[[], object]]:
    from .collectives import blocking_call

    kinds = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
    return {kind: blocking_call(kind, 4 * _LATENCY_ELEMENTS, context) for kind in kinds}


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before
