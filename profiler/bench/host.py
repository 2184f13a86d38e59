"""Host time: what Python, autograd and the parallel wrappers cost per op, measured where tensors are too small to matter.

`training` rows: wall time of a phase of a real tiny training loop over the number of ops in it (views not counted, their
time is part of it). `isolated` rows: the launch floor of the same kind of op in a plain loop. Wrapper rows: what a
wrapped tiny model's step takes beyond its ops at the training rate and its collectives at their measured latency.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...datasets.ops import canonical, short_name
from ...datasets.plan import Plan
from ...datasets.workloads import load
from ...datasets.workloads.spec import Workload
from ...datasets.workloads.step import make_step
from ..rank import RankContext
from .timing import Timing, repeat

TINY: dict[str, dict[str, Any]] = {
    "gpt": {"layers": 3, "width": 16, "heads": 2, "seq": 8, "vocab": 32, "batch": 4},
    "mlp": {"layers": 4, "width": 16, "hidden": 16, "features": 16, "classes": 8, "batch": 4},
    "resnet": {"width": 4, "image": 8, "blocks": 1, "stages": 2, "classes": 8, "batch": 4},
}
_STEPS = 30


class OpCounter(TorchDispatchMode):
    """Counts ops by phase as the tracer would: views apart, composites not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()
        self.views: Counter[str] = Counter()
        self.collectives: Counter[str] = Counter()
        self.phase = "forward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented
        name = func._schema.name
        namespace = name.partition("::")[0]
        phase = "backward" if torch._C._current_graph_task_id() != -1 else self.phase
        if namespace in ("c10d", "_c10d_functional"):
            self.collectives[short_name(name)] += 1
        elif namespace in ("aten", "fsdp"):
            op = canonical(name, [], [])
            if op is not None:
                (self.views if op.family == "view" else self.ops)[phase] += 1
        return func(*args, **(kwargs or {}))


def tiny(name: str) -> Workload:
    """A built-in workload with settings so small that only host time is left; unknown settings are dropped."""
    import inspect

    from ...datasets import workloads

    factory = getattr(__import__(f"{workloads.__name__}.{name}", fromlist=[name]), name)
    accepted = inspect.signature(factory).parameters
    return load(name, **{key: value for key, value in TINY[name].items() if key in accepted})


def measure_host(context: RankContext) -> dict[str, Any]:
    """`training` and `isolated` HOST rows, one rank."""
    rows: list[dict[str, Any]] = []
    for name in TINY:
        rows += _training_rows(name)
    rows.append(_isolated_row())
    return {"rows": rows}


def _training_rows(name: str) -> list[dict[str, Any]]:
    workload = tiny(name)
    module = workload.build()
    optimizer = workload.make_optimizer(module.parameters())
    inputs, target = workload.make_batch(workload.batch)
    phases: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": []}
    counter = OpCounter()

    def step(mark: Callable[[str], None]) -> None:
        loss = workload.loss(module(*inputs), target)
        mark("forward")
        loss.backward()
        mark("backward")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark("optimizer")

    for number in range(_STEPS + 5):
        last = time.perf_counter()

        def mark(phase: str, number: int = number) -> None:
            nonlocal last
            now = time.perf_counter()
            if number >= 5:
                phases[phase].append(now - last)
            last = now

        step(mark)
    with counter:

        def follow(phase: str) -> None:
            counter.phase = {"forward": "backward", "backward": "optimizer"}.get(phase, "forward")

        step(follow)
    rows = []
    for phase, seconds in phases.items():
        timing = Timing.of(seconds)
        ops = max(1, counter.ops[phase])
        rows.append(
            {
                "kind": "training", "workload": name, "phase": phase, "ops": ops, "views": counter.views[phase],
                "time_s": timing.time_s / ops, "spread": timing.spread,
                "source": "wall time of the phase / ops of the phase, tiny tensors",
            }
        )  # fmt: skip
    return rows


def _isolated_row() -> dict[str, Any]:
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    timings = [
        Timing.of(repeat(call, budget_s=0.02)).time_s
        for call in (
            lambda: torch.mm(a, b),
            lambda: torch.add(a, b),
            lambda: torch.relu(a),
            lambda: a.clone(),
            lambda: a.mul_(1.0),
        )
    ]
    return {
        "kind": "isolated", "workload": None, "phase": None, "ops": 1, "views": 0, "time_s": median(timings),
        "spread": None, "source": "median of mm, add, relu, clone, mul_ on 4 × 4 in a plain loop",
    }  # fmt: skip


def measure_wrappers(context: RankContext) -> dict[str, Any]:
    """HOST rows of wrappers on two ranks; `task["latency_s"]` holds each collective's latency by kind."""
    latency_s: dict[str, float] = context.task["latency_s"]
    torch.set_num_threads(1)
    plain = {name: _step_facts(tiny(name), Plan(), context) for name in ("gpt", "mlp")}
    per_op = {name: facts["time_s"] / facts["ops"] for name, facts in plain.items()}
    rows = []

    def row(kind: str, seconds: list[float], source: str) -> None:
        rows.append(
            {
                "kind": kind, "workload": "gpt, mlp", "phase": None, "ops": None, "views": None,
                "time_s": max(0.0, median(seconds)), "spread": None, "source": source,
            }
        )  # fmt: skip

    both = ("gpt", "mlp")
    # dp: a + b · parameters, from two models; the one bucket's all-reduce taken off.
    extra = {}
    for name in both:
        facts = _step_facts(tiny(name), Plan(dp=2), context)
        extra[name] = (facts["time_s"] - plain[name]["time_s"] - latency_s["all_reduce"], facts["parameters"])
    (large_s, large), (small_s, small) = extra["gpt"], extra["mlp"]
    each = max(0.0, (large_s - small_s) / (large - small)) if large != small else 0.0
    row("ddp_parameter", [each], "step under DDP less plain step less all-reduce latency: slope over parameters")
    row("ddp_step", [small_s - each * small], "the same, intercept")

    fsdp = []
    for name in both:
        facts = _step_facts(tiny(name), Plan(fsdp=2), context)
        units = facts["blocks"] + 1
        spent = (
            facts["ops"] * per_op[name]
            + facts["gathers"] * latency_s["all_gather"]
            + facts["scatters"] * latency_s["reduce_scatter"]
        )
        fsdp.append((facts["time_s"] - spent) / units)
    row("fsdp_unit", fsdp, "step under FSDP2 less its ops at the plain rate less collectives, per unit")

    tensor = []
    for name in both:
        facts = _step_facts(tiny(name), Plan(tp=2), context)
        spent = facts["ops"] * per_op[name] + facts["all_reduces"] * latency_s["all_reduce"]
        tensor.append((facts["time_s"] - spent) / facts["ops"])
    row("dtensor_op", tensor, "step under tensor parallel less its ops at the plain rate less all-reduces, per op")

    checkpoint = []
    for name in both:
        facts = _step_facts(tiny(name), Plan(recompute="full"), context)
        checkpoint.append((facts["time_s"] - facts["ops"] * per_op[name]) / facts["blocks"])
    row("checkpoint_block", checkpoint, "step with full recompute less its ops at the plain rate, per block")

    micro = 4
    actions = []
    for name in both:
        accumulated = _step_facts(tiny(name), Plan(micro_batches=micro), context)
        piped = _step_facts(tiny(name), Plan(pp=2, micro_batches=micro, schedule="gpipe"), context)
        # Two stages of half the work each: (m + 1) of m micro-batches' halves, and a message each way at the turn.
        ideal_s = accumulated["time_s"] / 2 * (micro + 1) / micro + 2 * latency_s["send_recv"]
        actions.append((piped["time_s"] - ideal_s) / (2 * (micro + 1)))
    row(
        "pipeline_action",
        actions,
        "two-stage GPipe step less (m + 1)/2m of the plain step less two messages, per action",
    )
    return {"rows": rows}


def _step_facts(workload: Workload, plan: Plan, context: RankContext) -> dict[str, Any]:
    """Median step seconds over ranks' maximum, and what a step does on this rank."""
    from torch import distributed

    from ...datasets.workloads.parallel import blocks

    if plan.world_size == 1 or plan.pp > 1:
        step = make_step(workload, plan, rank=context.rank if plan.world_size > 1 else 0)
    else:
        step = make_step(workload, plan, rank=context.rank)
    for _ in range(4):
        step.run()
    seconds = []
    for _ in range(_STEPS):
        context.barrier()
        before = time.perf_counter()
        step.run()
        seconds.append(time.perf_counter() - before)
    slowest = torch.tensor(seconds, dtype=torch.float64)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    counter = OpCounter()
    if plan.pp == 1 and plan.dp == 1:
        with counter:
            step.run()
    else:
        step.run()
    names = counter.collectives
    return {
        "time_s": float(slowest.median()),
        "ops": max(1, sum(counter.ops.values())),
        "parameters": sum(1 for _ in step.module.parameters()),
        "blocks": max(1, len(blocks(workload.build()))),
        "gathers": sum(count for name, count in names.items() if "gather" in name),
        "scatters": sum(count for name, count in names.items() if "scatter" in name),
        "all_reduces": sum(count for name, count in names.items() if "allreduce" in name or "all_reduce" in name),
    }
