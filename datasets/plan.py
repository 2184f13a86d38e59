"""Plan: how one training step is split over ranks, as frozen data that checks itself.

Axes, outermost first as ranks are numbered: pp (pipeline stages), dp (replicas), fsdp (replicas that shard their
state, ZeRO-3), tp (tensor parallel). `dp > 1 and fsdp > 1` is hybrid sharding (HSDP).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .errors import PlanError, UsageError

SCHEDULES = ("gpipe", "1f1b")
PRECISIONS = ("fp32", "bf16")
RECOMPUTES = ("none", "full")
AXES = ("pp", "dp", "fsdp", "tp")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A parallel plan. Every field has a neutral default, so `Plan()` is one process without anything special.

    Raises `PlanError` when a field is out of range or two fields contradict each other.
    """

    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Replicas that hold the whole state and all-reduce gradients (DDP)."""
    fsdp: int = 1
    """Replicas that shard parameters, gradients and optimizer state (FSDP2, ZeRO-3)."""
    tp: int = 1
    """Tensor-parallel ranks."""
    schedule: str = "1f1b"
    """Pipeline schedule, `gpipe` or `1f1b`; without effect when pp is 1."""
    micro_batches: int = 1
    """Micro-batches per step and rank: pipeline micro-batches when pp > 1, gradient accumulation otherwise."""
    global_batch: int | None = None
    """Samples per step over all ranks; None takes the workload's default batch."""
    precision: str = "fp32"
    """`fp32`, or `bf16` for autocast to bfloat16 with fp32 parameters."""
    recompute: str = "none"
    """Activation checkpointing: `none`, or `full` (every block of the module)."""
    threads: int | None = None
    """Intra-op threads per rank on a CPU; None shares the usable cores evenly among the ranks of a host."""

    def __post_init__(self) -> None:
        for name in (*AXES, "micro_batches"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"plan: {name} must be a whole number of at least 1, found {value!r}")
        for name in ("global_batch", "threads"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise PlanError(f"plan: {name} must be a whole number of at least 1 or left out, found {value!r}")
        for name, known in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("recompute", RECOMPUTES)):
            value = getattr(self, name)
            if value not in known:
                raise PlanError(f"plan: {name} is {value!r}; known are {', '.join(known)}")
        if self.global_batch is not None:
            self.micro_batch_of(self.global_batch)

    @property
    def world_size(self) -> int:
        """Ranks: pp × dp × fsdp × tp."""
        return self.pp * self.dp * self.fsdp * self.tp

    @property
    def replicas(self) -> int:
        """Ranks that see different samples: dp × fsdp."""
        return self.dp * self.fsdp

    def micro_batch_of(self, global_batch: int) -> int:
        """Samples per micro-batch and rank. Raises `PlanError` with the whole equation when it does not divide."""
        pieces = self.replicas * self.micro_batches
        if global_batch % pieces:
            raise PlanError(
                f"plan: global_batch {global_batch} does not divide by dp({self.dp}) × fsdp({self.fsdp}) × "
                f"micro_batches({self.micro_batches}) = {pieces}; remainder {global_batch % pieces}"
            )
        return global_batch // pieces

    def check_world_size(self, world_size: int) -> None:
        """Raise `PlanError` unless the axes multiply to `world_size`."""
        if self.world_size != world_size:
            raise PlanError(
                f"plan: pp({self.pp}) × dp({self.dp}) × fsdp({self.fsdp}) × tp({self.tp}) = {self.world_size}, "
                f"but world_size is {world_size}"
            )

    def threads_per_rank(self, usable_cores: int) -> int:
        """Intra-op threads of one rank on a host that gives `usable_cores` to this job."""
        return self.threads or max(1, usable_cores // self.world_size)

    def with_(self, **changes: Any) -> Plan:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data, for manifests and JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """Rebuild from `to_dict`; fields that came later take their defaults, unknown ones raise `PlanError`."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise PlanError(f"plan: unknown field {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(**data)

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read `dp=2,micro_batches=4,precision=bf16`; an empty text or `single` is `Plan()`.

        `micro_batch=N` may stand for `micro_batches` when `global_batch` is given too. Raises `UsageError` for text
        that is not `name=value` pairs, `PlanError` for values that make no plan.
        """
        kinds = {field.name: str(field.type) for field in fields(cls)}
        values: dict[str, Any] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            if part == "single":
                continue
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not value or (name not in kinds and name != "micro_batch"):
                raise UsageError(f"plan {text!r}: cannot read {part!r}; write NAME=VALUE with {', '.join(kinds)}")
            if name in values:
                raise UsageError(f"plan {text!r}: {name} is given twice")
            if "int" in kinds.get(name, "int"):
                try:
                    values[name] = int(value)
                except ValueError:
                    raise UsageError(f"plan {text!r}: {name} needs a whole number, found {value!r}") from None
            else:
                values[name] = value
        if (micro_batch := values.pop("micro_batch", None)) is not None:
            values["micro_batches"] = _micro_batches(cls(**values), micro_batch)
        return cls(**values)

    def __str__(self) -> str:
        neutral = Plan()
        changed = [f.name for f in fields(self) if getattr(self, f.name) != getattr(neutral, f.name)]
        return ",".join(f"{name}={getattr(self, name)}" for name in changed) or "single"


def _micro_batches(plan: Plan, micro_batch: int) -> int:
    if plan.global_batch is None or plan.micro_batches != 1:
        raise PlanError("plan: micro_batch needs global_batch beside it, and no micro_batches")
    pieces = plan.replicas * micro_batch
    if micro_batch < 1 or plan.global_batch % pieces:
        raise PlanError(
            f"plan: global_batch {plan.global_batch} does not divide by dp({plan.dp}) × fsdp({plan.fsdp}) × "
            f"micro_batch({micro_batch}) = {pieces}"
        )
    return plan.global_batch // pieces


def split_layers(layers: int, stages: int, explicit: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Layers per pipeline stage: the explicit split if given, else as even as can be with the longer stages first.

    The result always sums to `layers`. Raises `PlanError` with the numbers when an explicit split does not, or when
    there are fewer layers than stages.
    """
    if explicit is not None:
        if len(explicit) != stages or sum(explicit) != layers or min(explicit) < 1:
            raise PlanError(
                f"plan: the split {'+'.join(map(str, explicit))} = {sum(explicit)} over {len(explicit)} stages does "
                f"not cover {layers} layers over pp({stages})"
            )
        return tuple(explicit)
    if layers < stages:
        raise PlanError(f"plan: {layers} layers cannot be split over pp({stages}) stages")
    base, longer = divmod(layers, stages)
    return tuple(base + (stage < longer) for stage in range(stages))


def padded_vocab(vocab_size: int, *, divisible_by: int = 1, tp: int = 1) -> int:
    """Vocabulary rows once padded so that every tensor-parallel rank holds a multiple of `divisible_by`."""
    if min(vocab_size, divisible_by, tp) < 1:
        raise PlanError(
            f"plan: vocabulary({vocab_size}), divisible_by({divisible_by}) and tp({tp}) must all be at least 1"
        )
    multiple = divisible_by * tp
    return -(-vocab_size // multiple) * multiple
