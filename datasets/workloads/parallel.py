"""Apply a Plan to a module: the one place where a plan becomes wrappers, for real runs and for traced ones.

Order, innermost first: tensor parallel, recompute, FSDP2 per block and root, DDP. Pipeline stages are cut before.
Ranks are numbered with pp outermost, then dp, fsdp, tp, as `Plan` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..errors import PlanError, UnsupportedError
from ..plan import AXES, Plan, split_layers
from .layers import Chain
from .spec import Workload

SUPPORTED_AXES: tuple[set[str], ...] = (
    set(),
    {"pp"},
    {"dp"},
    {"fsdp"},
    {"tp"},
    {"dp", "fsdp"},
    {"fsdp", "tp"},
    {"pp", "dp"},
)
"""Sets of axes longer than 1 that can be run and traced."""


def check_plan(workload: Workload, plan: Plan) -> None:
    """Raise what can be known before anything is built.

    `UnsupportedError` for a combination of axes that is not served or a workload without a tensor-parallel form,
    `PlanError` with the numbers when the batch, the heads or the micro-batches do not fit.
    """
    axes = {axis for axis in AXES if getattr(plan, axis) > 1}
    if axes not in SUPPORTED_AXES:
        sizes = " × ".join(f"{axis}({getattr(plan, axis)})" for axis in AXES if axis in axes)
        raise UnsupportedError(
            f"plan {plan}: {sizes} together cannot be run or traced yet; use one axis, or dp × fsdp, fsdp × tp, pp × dp"
        )
    workload.global_batch_of(plan)
    if plan.tp > 1:
        if not workload.tp_styles:
            raise UnsupportedError(
                f"plan {plan}: workload {workload.name} has no tensor parallel form (tp_styles is empty); "
                "use dp, fsdp or pp, or give the workload tp_styles"
            )
        for what, number in workload.tp_divides.items():
            if number % plan.tp:
                raise PlanError(
                    f"plan {plan}: workload {workload.name}: {what} {number} does not divide by tp({plan.tp}); "
                    f"remainder {number % plan.tp}"
                )
    if plan.pp > 1 and plan.schedule == "1f1b" and plan.micro_batches < plan.pp:
        raise PlanError(
            f"plan {plan}: schedule 1f1b over pp({plan.pp}) needs at least {plan.pp} micro_batches, "
            f"found {plan.micro_batches}"
        )


def coordinates(plan: Plan, rank: int) -> dict[str, int]:
    """Index of `rank` on every axis, `{"pp": 0, "dp": 1, "fsdp": 0, "tp": 0}`."""
    indices: dict[str, int] = {}
    for axis in reversed(AXES):
        rank, indices[axis] = divmod(rank, getattr(plan, axis))
    return {axis: indices[axis] for axis in AXES}


def replica_of(plan: Plan, rank: int) -> int:
    """Which of the `plan.replicas` parts of the global batch `rank` works on."""
    place = coordinates(plan, rank)
    return place["dp"] * plan.fsdp + place["fsdp"]


def make_mesh(plan: Plan, *, device_type: str = "cpu") -> Any | None:
    """The device mesh over the default process group with the axes longer than 1 by name; None for one rank."""
    if plan.world_size == 1:
        return None
    from torch.distributed.device_mesh import init_device_mesh

    axes = [axis for axis in AXES if getattr(plan, axis) > 1]
    return init_device_mesh(device_type, tuple(getattr(plan, axis) for axis in axes), mesh_dim_names=tuple(axes))


def blocks(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The units of sharding, recompute and pipelining: children of a top `nn.Sequential`, else nothing to split."""
    return list(module.named_children()) if isinstance(module, nn.Sequential) else []


def stage_modules(module: nn.Module, plan: Plan) -> list[nn.Module]:
    """The module cut into `plan.pp` stages, as even by child count as can be; children keep their names.

    Raises `PlanError` when there are fewer children than stages, `UnsupportedError` when the top is no Sequential.
    """
    if plan.pp == 1:
        return [module]
    units = blocks(module)
    if not units:
        raise UnsupportedError(
            f"plan {plan}: pipeline stages are cut between the children of an nn.Sequential, but the top module is "
            f"{type(module).__name__}; return an nn.Sequential from the factory"
        )
    counts = split_layers(len(units), plan.pp)
    stages: list[nn.Module] = []
    first = 0
    for count in counts:
        stage = Chain()
        for name, child in units[first : first + count]:
            stage.add_module(name, child)
        stages.append(stage)
        first += count
    return stages


class Recompute(nn.Module):
    """A block whose activations are dropped after forward and computed again in backward."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: Any) -> Any:
        """As the block's own."""
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.block, *inputs, use_reentrant=False)


def apply_plan(
    module: nn.Module, workload: Workload, plan: Plan, mesh: Any | None, *, wrap_dp: bool = True
) -> nn.Module:
    """Wrap one rank's module (a whole one, or its pipeline stage) for `plan`; changes `module` in place.

    `mesh` comes from `make_mesh`. `wrap_dp=False` leaves DDP out: its reducer is C++ that cannot be traced under
    FakeTensorMode, so a tracer traces the bare module and adds the bucketed all-reduces itself. A tracer applies the
    plan to a module on the meta device before it enters FakeTensorMode (a mesh of fsdp × tp cannot be made under the
    mode) and calls `to_empty(device="cpu")` under it.
    """
    check_plan(workload, plan)
    if plan.tp > 1:
        assert mesh is not None
        _tensor_parallel(module, workload, plan, mesh["tp"])
    if plan.recompute == "full":
        module = _recompute(module)
    if plan.fsdp > 1:
        assert mesh is not None
        module = _fully_shard(module, mesh["dp", "fsdp"] if plan.dp > 1 else mesh["fsdp"])
    elif plan.dp > 1 and wrap_dp:
        assert mesh is not None
        module = nn.parallel.DistributedDataParallel(module, process_group=mesh.get_group("dp"))
    return module


def _tensor_parallel(module: nn.Module, workload: Workload, plan: Plan, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    def shared() -> PrepareModuleInput:
        return PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),), use_local_output=False
        )

    styles: dict[str, Any] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel, "shared": shared}
    chosen: dict[str, Any] = {}
    for pattern, style in workload.tp_styles.items():
        matched = [(name, child) for name, child in module.named_modules() if name and fnmatchcase(name, pattern)]
        for name, child in matched:
            chosen[name] = styles[style]()
            size = getattr(child, {"colwise": "out_features", "rowwise": "in_features"}.get(style, ""), None)
            if size is not None and size % plan.tp:
                raise PlanError(
                    f"plan {plan}: workload {workload.name}: {name} is {style} over {size} features, which does not "
                    f"divide by tp({plan.tp}); remainder {size % plan.tp}"
                )
    if not chosen:
        raise PlanError(
            f"plan {plan}: workload {workload.name}: no module matches tp_styles {', '.join(workload.tp_styles)}; "
            f"names are like {', '.join(name for name, _ in list(module.named_modules())[1:4])}"
        )
    parallelize_module(module, mesh, chosen)


def _recompute(module: nn.Module) -> nn.Module:
    units = blocks(module)
    if not units:
        return Recompute(module)
    for name, child in units:
        module._modules[name] = Recompute(child)
    return module


def _fully_shard(module: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for child in _sharded_units(module):
        fully_shard(child, mesh=mesh)
    fully_shard(module, mesh=mesh)  # changes the class of `module` in place
    return module


def _sharded_units(module: nn.Module) -> Iterator[nn.Module]:
    for _, child in blocks(module):
        # A unit without parameters would only add hooks.
        if next(child.parameters(), None) is not None:
            yield child
