"""Host time: what Python and autograd cost per op, measured where tensors are too small to matter.

`training` rows: wall time of a phase of a real tiny training loop over the number of ops in it (views not counted,
their time is part of it). `isolated` rows: the same ops in a plain loop. `page_fault`: the first write to a fresh page.
"""

from __future__ import annotations

import mmap
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...datasets.ops import canonical, short_name
from ...datasets.workloads import load
from ...datasets.workloads.spec import Workload
from ..rank import RankContext
from .heap import page_fault_s
from .point import op_of
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
        rows.append(_isolated_row(name))
    rows.append(
        {
            "kind": "page_fault", "workload": None, "phase": None, "ops": None, "views": None, "time_s": page_fault_s(),
            "spread": None, "source": f"first write to a fresh page of {mmap.PAGESIZE} bytes less the second",
        }
    )  # fmt: skip
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


class OpTape(TorchDispatchMode):
    """Every operator call of a step with its arguments, views left out, to be called again without the step."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = op_of(func, [], {}, [])
        if op is not None and op.family != "view":
            self.calls.append((func, args, kwargs))
        return func(*args, **kwargs)


def _isolated_row(name: str) -> dict[str, Any]:
    workload = tiny(name)
    module = workload.build()
    optimizer = workload.make_optimizer(module.parameters())
    inputs, target = workload.make_batch(workload.batch)
    tape = OpTape()
    with tape:
        workload.loss(module(*inputs), target).backward()
        optimizer.step()

    def replay() -> None:
        with torch.no_grad():
            for func, args, kwargs in tape.calls:
                func(*args, **kwargs)

    timing = Timing.of(repeat(replay, budget_s=0.1))
    return {
        "kind": "isolated", "workload": name, "phase": None, "ops": len(tape.calls), "views": 0,
        "time_s": timing.time_s / len(tape.calls), "spread": timing.spread,
        "source": "the ops of a step of tiny tensors, one after the other in a plain loop",
    }  # fmt: skip
