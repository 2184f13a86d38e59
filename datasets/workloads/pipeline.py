"""PipelineStep: one training step of one pipeline stage, over `torch.distributed.pipelining`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ..plan import Plan
from .parallel import apply_plan, coordinates, stage_modules
from .spec import Workload
from .step import Batch, split_batch


def stage_inputs(stages: list[nn.Module], plan: Plan, inputs: tuple[Any, ...]) -> list[tuple[torch.Tensor, ...]]:
    """What enters each stage and, last, what leaves the last one, as meta tensors for one micro-batch.

    `inputs` are those of one micro-batch. The stages run under FakeTensorMode: nothing is computed or allocated.
    """
    boundary = [tuple(tensor.to("meta") for tensor in inputs)]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "bf16"):
        flowing = tuple(mode.from_tensor(tensor) for tensor in inputs)
        for stage in stages:
            # Faked one by one, buffers too: a real batch norm would move its averages.
            tensors = dict(stage.named_parameters()) | dict(stage.named_buffers())
            fake: dict[str, torch.Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}
            output = torch.func.functional_call(stage, fake, flowing)
            flowing = output if isinstance(output, tuple) else (output,)
            boundary.append(tuple(_meta(tensor) for tensor in flowing))
    return boundary


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    # requires_grad tells the schedule that a gradient comes back over this boundary.
    floating = tensor.dtype.is_floating_point
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", requires_grad=floating)


class Border(nn.Module):
    """A pipeline stage as the schedule sees it: tensors that cross its borders are contiguous, which gloo insists on
    and an LSTM or a transposed view is not, and only forward runs under autocast, since the schedule calls forward and
    backward by turns."""

    def __init__(self, stage: nn.Module, *, bf16: bool) -> None:
        super().__init__()
        self.stage = stage
        self._bf16 = bf16

    def forward(self, *inputs: Any) -> Any:
        """As the stage's own."""
        for tensor in inputs:
            if tensor.requires_grad:
                tensor.register_hook(torch.Tensor.contiguous)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            output = self.stage(*inputs)
        return tuple(part.contiguous() for part in output) if isinstance(output, tuple) else output.contiguous()


class PipelineStep:
    """One training step of the stage that this rank holds, under GPipe or 1F1B.

    `module` is the whole module; only this rank's stage is kept. `run()` returns the mean loss on the last stage and
    None on the others.
    """

    def __init__(self, workload: Workload, plan: Plan, *, module: nn.Module, batch: Batch, mesh: Any) -> None:
        from torch import distributed
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        index = coordinates(plan, distributed.get_rank())["pp"]
        stages = stage_modules(module, plan)
        micro_inputs, _ = split_batch(batch, plan.micro_batches)[0]
        boundary = stage_inputs(stages, plan, micro_inputs)
        own = stages[index]
        del stages, module

        # The border goes inside DDP, which the schedule wants to see itself.
        own = apply_plan(own, workload, plan, mesh, wrap_dp=False)
        bordered: nn.Module = Border(own, bf16=plan.precision == "bf16")
        if plan.dp > 1:
            bordered = nn.parallel.DistributedDataParallel(bordered, process_group=mesh.get_group("dp"))
        self.module = bordered
        self.optimizer = workload.make_optimizer(bordered.parameters())
        self._is_first, self._is_last = index == 0, index == plan.pp - 1
        self._inputs, self._target = batch

        def micro_loss(output: Any, target: Any) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "bf16"):
                return workload.loss(output, target) / plan.micro_batches

        # Shapes given here spare the first step an exchange of pickled shapes between the stages.
        stage = PipelineStage(
            bordered,
            index,
            plan.pp,
            torch.device("cpu"),
            input_args=boundary[index],
            output_args=boundary[index + 1],
            group=mesh.get_group("pp"),
        )
        # The loss is divided instead of the gradients: one number instead of a pass over all of them.
        kind = ScheduleGPipe if plan.schedule == "gpipe" else Schedule1F1B
        self._schedule = kind(stage, n_microbatches=plan.micro_batches, loss_fn=micro_loss, scale_grads=False)
        # Else the last stage joins all its outputs for a caller who drops them (torch 2.7 has no such option).
        options = inspect.signature(self._schedule.step).parameters
        self._options: dict[str, Any] = {"return_outputs": False} if "return_outputs" in options else {}

    def run(self) -> torch.Tensor | None:
        """One optimizer update over all micro-batches."""
        losses: list[torch.Tensor] = []
        if self._is_first:
            self._schedule.step(*self._inputs, **self._options)
        elif self._is_last:
            self._schedule.step(target=self._target, losses=losses, **self._options)
        else:
            self._schedule.step(**self._options)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else None
