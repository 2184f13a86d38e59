"""Chains: the operators of real optimizers, timed inside the optimizer's own step.

An optimizer walks over parameters with the same few operators: their code stays in the caches, a state is cold when the
first of them reads it and warm for the next, a temporary is reused at once. None of that holds for an operator alone,
so here torch's own optimizer runs and a dispatch mode takes the time of each operator in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...datasets.ops import Op
from .point import op_of
from .timing import Timing

# Parameters of a chain take this much memory together with their states, as a model's do between two steps.
_FOOTPRINT_BYTES = 64 << 20
_MOST_PARAMETERS = 16
_OPTIMIZERS: dict[str, tuple[int, Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    # name -> tensors per parameter, and how it is made; the defaults of a CPU are the single-tensor loops.
    "AdamW": (4, lambda parameters: torch.optim.AdamW(parameters, lr=1e-6)),
    "SGD with momentum": (3, lambda parameters: torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)),
}
_QUICK_SHAPES = [(64,), (1024,), (64, 64), (128, 128), (256, 256), (256, 1024), (1024, 1024), (4096, 512)]
_FULL_SHAPES = [
    (16,), (256,), (4096,), (32, 64), (192, 192), (384, 384), (512, 1024), (2048, 1024), (4096, 1024), (8192, 1024),
]  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """One optimizer on parameters of one shape."""

    optimizer: str
    shape: tuple[int, ...]

    def prepare(self) -> torch.optim.Optimizer:
        """The optimizer with gradients and states in place."""
        tensors, make = _OPTIMIZERS[self.optimizer]
        size = 4 * tensors * torch.Size(self.shape).numel()
        parameters = [torch.rand(self.shape) for _ in range(max(2, min(_MOST_PARAMETERS, _FOOTPRINT_BYTES // size)))]
        for parameter in parameters:
            parameter.grad = torch.rand(self.shape)
        optimizer = make(parameters)
        optimizer.step()
        return optimizer


def chains(*, quick: bool) -> list[Chain]:
    """All chains of a sweep."""
    shapes: list[tuple[int, ...]] = _QUICK_SHAPES if quick else _QUICK_SHAPES + _FULL_SHAPES
    return [Chain(optimizer, shape) for shape in shapes for optimizer in _OPTIMIZERS]


class OpTimer(TorchDispatchMode):
    """Seconds of every operator below autograd, in order; with `learn`, also what each of them is."""

    def __init__(self, *, learn: bool = False) -> None:
        super().__init__()
        self.durations_s: list[float] = []
        self.ops: list[Op | None] = []
        self._learn = learn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = time.perf_counter()
        outputs = func(*args, **kwargs)
        self.durations_s.append(time.perf_counter() - before)
        if self._learn:
            self.ops.append(op_of(func, args, kwargs, outputs))
        return outputs


def time_chain(chain: Chain, start: Callable[[], None], rounds: Callable[[float], int]) -> list[tuple[Op, Timing]]:
    """Each distinct operator of one step with its timing over all parameters and rounds.

    `start` is called before each step, so that several ranks take it together; `rounds` says how many steps to time,
    given the seconds of one, and ranks must agree on it.
    """
    optimizer = chain.prepare()
    learner = OpTimer(learn=True)
    with learner:
        optimizer.step()
    durations: dict[Op, list[float]] = {op: [] for op in learner.ops if op is not None and op.family != "view"}

    def step() -> None:
        timer = OpTimer()
        start()
        with timer:
            optimizer.step()
        for op, duration_s in zip(learner.ops, timer.durations_s, strict=True):
            if op in durations:
                durations[op].append(duration_s)

    for _ in range(rounds(sum(learner.durations_s))):
        step()
    return [(op, Timing.of(found)) for op, found in durations.items()]
