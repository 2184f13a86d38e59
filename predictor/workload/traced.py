"""Trace a torch workload under a plan into rank programs: nothing is computed, nothing allocated, no device needed.

The module is built on the meta device, wrapped by the same code that wraps a real run, and stepped twice under
FakeTensorMode with a fake process group of the plan's size. The second step is recorded: by then the optimizer has its
state, as in every later step. DistributedDataParallel's reducer is C++ and cannot be traced; the bare module is, and
each gradient's moment of readiness is noted for lowering to fill the buckets.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ...datasets.errors import ForetraceError, InputError
from ...datasets.plan import AXES, Plan
from ...datasets.workloads.parallel import apply_plan, blocks, check_plan, make_mesh, stage_modules
from ...datasets.workloads.pipeline import stage_inputs
from ...datasets.workloads.spec import Workload
from ...datasets.workloads.step import Batch, Step, rank_batch, split_batch
from .program import Entry, Kind, Program
from .recorder import Recorder
from .stage import StagePrograms


def trace(workload: Workload, plan: Plan) -> list[StagePrograms]:
    """Programs of one rank of every pipeline stage, one stage where there is no pipeline.

    Raises `PlanError` or `UnsupportedError` for plans that the workload cannot take, `InputError` when the module
    cannot be traced (a value decides what runs, or its code fails), naming what it said.
    """
    check_plan(workload, plan)
    with _process_group(plan), _quiet():
        try:
            if plan.pp > 1:
                return _trace_pipeline(workload, plan)
            return [_trace_flat(workload, plan)]
        except ForetraceError:
            raise
        except Exception as error:
            raise InputError(
                f"workload {workload}: cannot be traced under plan {plan}: {type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}; a traced step must not read tensor values"
            ) from error


@contextmanager
def _process_group(plan: Plan) -> Iterator[None]:
    """A fake default process group of the plan's size, unless there is a real one or nothing needs it."""
    from torch import distributed

    if plan.fsdp == 1 and plan.tp == 1:
        yield
        return
    if distributed.is_initialized():
        raise InputError("predict: a torch.distributed process group is initialised here; predict in another process")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=plan.world_size, store=FakeStore())
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns about fake groups and unused hooks; none of it concerns a reader of a prediction."""
    logger = logging.getLogger("torch.distributed")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _build(workload: Workload) -> nn.Module:
    """The module on the meta device; one whose constructor computes with values is built for real, then emptied."""
    try:
        with torch.device("meta"):
            return workload.build()
    except Exception:
        return workload.build().to("meta")


def _axis_namer(plan: Plan, mesh: Any) -> Any:
    """Process group (or its name) -> (mesh axis, ranks)."""
    from torch import distributed

    known: dict[str, tuple[str, int]] = {}
    if mesh is not None:
        for axis in AXES:
            if getattr(plan, axis) > 1:
                known[mesh.get_group(axis).group_name] = (axis, getattr(plan, axis))

    def name(group: Any) -> tuple[str, int]:
        if isinstance(group, str):
            text = group
        else:
            group = distributed.ProcessGroup.unbox(group) if isinstance(group, torch.ScriptObject) else group
            text = getattr(group, "group_name", "")
        return known.get(text, ("dp", plan.world_size))

    return name


def _trace_flat(workload: Workload, plan: Plan) -> StagePrograms:
    mesh = make_mesh(plan) if plan.fsdp > 1 or plan.tp > 1 else None
    module = apply_plan(_build(workload), workload, plan, mesh, wrap_dp=False)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        module.to_empty(device="cpu")
        batch = _fake_batch(mode, rank_batch(workload, plan, 0))
        optimizer = workload.make_optimizer(module.parameters())
        step = Step(workload, plan, module=module, optimizer=optimizer, batch=batch)
        step.run()
        recorder = Recorder(axis_of=_axis_namer(plan, mesh), resizable=plan.fsdp > 1)
        memory = _MemoryCategories(recorder, module, optimizer, batch)
        ddp = plan.dp > 1 and plan.fsdp == 1
        _note_gradients(recorder, memory, module, after=plan.micro_batches if ddp else None)
        with recorder:
            step.run()
        program = memory.resolve(recorder.close())
    program.host_kind = "dtensor" if plan.tp > 1 else "eager"
    if ddp:
        # The reducer holds every gradient a second time, in its buckets.
        program.resident_bytes["communication"] = sum(e.index for e in program.entries if e.kind is Kind.READY)
    wrappers: Counter[str] = Counter()
    if plan.fsdp > 1:
        wrappers["fsdp_unit"] = (len(blocks(module)) + 1) * plan.micro_batches
    if plan.recompute == "full":
        wrappers["checkpoint_block"] = max(1, len(blocks(module))) * plan.micro_batches
    return StagePrograms(step=program, ddp=ddp, wrappers=wrappers)


def _trace_pipeline(workload: Workload, plan: Plan) -> list[StagePrograms]:
    micro = Plan(micro_batches=plan.micro_batches, precision=plan.precision, recompute=plan.recompute)
    whole = _build(workload)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        # dp only changes how many samples this rank sees.
        batch = _fake_batch(mode, rank_batch(workload, replace(plan, pp=1, recompute="none"), 0))
    micro_inputs, micro_target = split_batch(batch, plan.micro_batches)[0]
    modules = stage_modules(whole, plan)
    borders = stage_inputs([module.to("meta") for module in modules], plan, _meta_inputs(micro_inputs))
    stages = []
    for index, module in enumerate(modules):
        module = apply_plan(module, workload, micro, None, wrap_dp=False)
        last = index == plan.pp - 1
        stages.append(
            _trace_stage(
                workload, plan, module, mode, borders[index], borders[index + 1], micro_target if last else None
            )
        )
        stages[-1].input_bytes = _bytes(borders[index]) if index else 0
        stages[-1].output_bytes = 0 if last else _bytes(borders[index + 1])
        if index == 0:
            stages[-1].input_bytes = 0
    return stages


def _trace_stage(
    workload: Workload,
    plan: Plan,
    module: nn.Module,
    mode: FakeTensorMode,
    inputs: tuple[torch.Tensor, ...],
    outputs: tuple[torch.Tensor, ...],
    target: Any,
) -> StagePrograms:
    """Forward and backward of one micro-batch and the optimizer, each recorded on its own, in a steady state."""
    bf16 = plan.precision == "bf16"
    with mode:
        module.to_empty(device="cpu")
        optimizer = workload.make_optimizer(module.parameters())
        received = tuple(torch.empty(t.shape, dtype=t.dtype).requires_grad_(t.dtype.is_floating_point) for t in inputs)
        gradients = tuple(torch.empty(t.shape, dtype=t.dtype) for t in outputs)

        def forward() -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                output = module(*received)
                return output if target is None else workload.loss(output, target) / plan.micro_batches

        def backward(output: Any) -> None:
            if target is not None:
                output.backward()
            else:
                parts = output if isinstance(output, tuple) else (output,)
                torch.autograd.backward([part for part in parts if part.requires_grad], list(gradients[: len(parts)]))

        backward(forward())
        optimizer.step()
        backward(forward())  # gradients accumulate in all micro-batches but the first
        programs = []
        for piece in ("forward", "backward", "optimizer"):
            recorder = Recorder()
            memory = _MemoryCategories(recorder, module, optimizer, ((), None), own=received)
            _note_gradients(recorder, memory, module, after=1 if plan.dp > 1 else None)
            with recorder:
                if piece == "forward":
                    output = forward()
                elif piece == "backward":
                    backward(output)
                    del output
                else:
                    optimizer.step()
            programs.append(memory.resolve(recorder.close()))
    first, second, third = programs
    _balance(first, second)
    return StagePrograms(forward=first, backward=second, optimizer=third, ddp=plan.dp > 1)


def _balance(forward: Program, backward: Program) -> None:
    """What a stage's forward keeps is released by its backward, which was recorded apart and could not see it."""
    kept = sum(
        entry.index if entry.kind is Kind.ALLOC else -entry.index
        for entry in forward.entries
        if entry.kind in (Kind.ALLOC, Kind.FREE) and entry.category == "activations"
    )
    if kept > 0:
        backward.entries.append(Entry(Kind.FREE, kept, "backward", category="activations"))


class _MemoryCategories:
    """Which category each storage belongs to, decided once the step has shown what became of it."""

    def __init__(
        self, recorder: Recorder, module: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, own: tuple = ()
    ) -> None:
        self.recorder = recorder
        self.category: dict[int, str] = {}
        self.resident: dict[str, int] = {}
        self._adopt("parameters", module.parameters())
        self._adopt("buffers", module.buffers())
        self._adopt("optimizer", _state_tensors(optimizer))
        self._adopt("gradients", (p.grad for p in module.parameters() if p.grad is not None))
        self._adopt("other", [*(t for t in batch[0] if isinstance(t, torch.Tensor)), *_tensor_list(batch[1]), *own])

    def _adopt(self, category: str, tensors: Any) -> None:
        tensors = list(tensors)
        size = self.recorder.adopt(tensors)
        if size:
            self.resident[category] = size
        for tensor in tensors:
            for serial in self.recorder.serial(tensor):
                self.category.setdefault(serial, category)

    def is_gradient(self, tensor: torch.Tensor) -> None:
        """Mark the storage of a gradient; the first mark counts."""
        for serial in self.recorder.serial(tensor):
            self.category.setdefault(serial, "gradients")

    def resolve(self, program: Program) -> Program:
        """Replace storage serials by categories; what is alive before the step goes to `resident_bytes`."""
        born = {entry.category: entry.phase for entry in program.entries if entry.kind is Kind.ALLOC}
        entries = []
        for entry in program.entries:
            if entry.kind in (Kind.ALLOC, Kind.FREE):
                category = self.category.get(int(entry.category))
                if category is None:
                    category = "activations" if born.get(entry.category) == "forward" else "other"
                entry = replace(entry, category=category)
            entries.append(entry)
        program.entries = entries
        program.resident_bytes = self.resident
        return program


def _note_gradients(recorder: Recorder, memory: _MemoryCategories, module: nn.Module, *, after: int | None) -> None:
    """Mark gradients for the memory account; with `after`, note readiness when a gradient arrived that many times."""
    arrivals: Counter[int] = Counter()

    def arrived(parameter: torch.Tensor) -> None:
        if parameter.grad is None:
            return
        memory.is_gradient(parameter.grad)
        arrivals[id(parameter)] += 1
        if after is not None and arrivals[id(parameter)] == after:
            size = parameter.grad.numel() * parameter.grad.element_size()
            recorder.program.entries.append(Entry(Kind.READY, size, "backward"))

    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(arrived)


def _state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _tensor_list(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, list | tuple) else []


def _fake_batch(mode: FakeTensorMode, batch: Batch) -> Batch:
    """A batch maker that used numpy or files returns real tensors; from here on all are fake."""

    def fake(tensor: Any) -> Any:
        return mode.from_tensor(tensor) if isinstance(tensor, torch.Tensor) else tensor

    inputs, target = batch
    target = type(target)(fake(t) for t in target) if isinstance(target, list | tuple) else fake(target)
    return tuple(fake(tensor) for tensor in inputs), target


def _meta_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(torch.empty(t.shape, dtype=t.dtype, device="meta") for t in inputs)


def _bytes(tensors: tuple[torch.Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
