"""Step: one training step of one rank, the same code under a real process group and under a traced one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import nn

from ..plan import Plan
from .parallel import apply_plan, check_plan, make_mesh, replica_of
from .spec import Workload

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

Batch = tuple[tuple[Any, ...], Any]
"""(inputs, target): a tuple of tensors and a tensor, samples in dim 0."""


class TrainingStep(Protocol):
    """What a rank repeats: `run()` is one optimizer update and returns the loss, or None where no loss is computed
    (a pipeline stage that is not the last)."""

    module: nn.Module
    optimizer: torch.optim.Optimizer

    def run(self) -> torch.Tensor | None:
        """One training step."""
        ...


class Step:
    """One training step without pipeline: micro-batch loop, backward, optimizer step, gradients dropped.

    `module` has the plan applied already (`apply_plan`), `batch` is this rank's part of the global batch. Nothing here
    depends on values of tensors, so that it runs under FakeTensorMode.
    """

    def __init__(
        self, workload: Workload, plan: Plan, *, module: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch
    ) -> None:
        self.workload = workload
        self.plan = plan
        self.module = module
        self.optimizer = optimizer
        self._autocast = plan.precision == "bf16"
        # Cut once: slicing belongs to the input pipeline, not to the step.
        self.micro_batches = split_batch(batch, plan.micro_batches)

    def run(self) -> torch.Tensor:
        """One optimizer update over all micro-batches; the mean loss of this rank's samples, detached."""
        total: torch.Tensor | None = None
        last = len(self.micro_batches) - 1
        for index, (inputs, target) in enumerate(self.micro_batches):
            with self._gradient_sync(index == last):
                # Entered per micro-batch, so that cast weights are not kept over the step's end.
                with self._precision():
                    loss = self.workload.loss(self.module(*inputs), target)
                    if last:
                        loss = loss / len(self.micro_batches)
                loss.backward()
            loss = loss.detach()
            total = loss if total is None else total + loss
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        assert total is not None
        return total

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16) if self._autocast else nullcontext()

    def _gradient_sync(self, wanted: bool) -> AbstractContextManager[Any]:
        """Gradients are reduced over replicas in the last micro-batch only."""
        if isinstance(self.module, nn.parallel.DistributedDataParallel):
            return nullcontext() if wanted else self.module.no_sync()
        if self.plan.fsdp > 1 and len(self.micro_batches) > 1:
            cast("FSDPModule", self.module).set_requires_gradient_sync(wanted)
        return nullcontext()


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """`parts` equal views of a batch, in order."""
    inputs, target = batch
    if parts == 1:
        return [batch]
    pieces = [tensor.tensor_split(parts) for tensor in inputs]
    targets = target.tensor_split(parts)
    return [(tuple(piece[part] for piece in pieces), targets[part]) for part in range(parts)]


def rank_batch(workload: Workload, plan: Plan, rank: int) -> Batch:
    """This rank's own copy of its part of the global batch, of which every rank draws the same one from its seed."""
    inputs, target = workload.make_batch(workload.global_batch_of(plan))
    if plan.replicas == 1:
        return inputs, target
    replica = replica_of(plan, rank)
    own_inputs, own_target = split_batch((inputs, target), plan.replicas)[replica]
    return tuple(tensor.clone() for tensor in own_inputs), own_target.clone()


def make_step(workload: Workload, plan: Plan, *, rank: int = 0, seed: int = 0) -> TrainingStep:
    """Build everything one rank needs, on the default process group when the plan has more than one rank.

    Every rank draws the same parameters and the same global batch from `seed`, so that a plan changes where the
    arithmetic happens and not its result.
    """
    check_plan(workload, plan)
    mesh = make_mesh(plan)
    torch.manual_seed(seed)
    module = workload.build()
    torch.manual_seed(seed + 1)
    batch = rank_batch(workload, plan, rank)
    if plan.pp > 1:
        from .pipeline import PipelineStep

        return PipelineStep(workload, plan, module=module, batch=batch, mesh=mesh)
    module = apply_plan(module, workload, plan, mesh)
    optimizer = workload.make_optimizer(module.parameters())
    return Step(workload, plan, module=module, optimizer=optimizer, batch=batch)
