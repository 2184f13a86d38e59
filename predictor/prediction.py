"""Prediction: the answer, with its interval, its parts and everything that a reader needs to judge it."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Timeline

SCHEMA_VERSION = 1
GIB = 1 << 30


@dataclass(frozen=True)
class StageMemory:
    """Peak memory of one rank of a stage and what it consists of at that moment."""

    stage: str
    peak_bytes: int
    parts_bytes: dict[str, int]
    """Sums to `peak_bytes`."""
    peak_at_s: float


@dataclass(frozen=True)
class OpCost:
    """One unique op of the step: what `--explain` lists."""

    op: str
    name: str
    phase: str
    dims: str
    dtype: str
    calls: int
    time_s: float
    """Seconds per call."""
    total_s: float
    """Seconds per step, over all rank classes."""
    spread: float
    """Log-spread of the price: 0.1 is about ten per cent."""
    source: str


@dataclass(frozen=True)
class Prediction:
    """Step time of the median step of healthy runs of one configuration, with an 80 % interval."""

    workload: str
    plan: dict[str, Any]
    cluster: str
    step_time_s: float
    low_s: float
    high_s: float
    parts_s: dict[str, float]
    """forward, backward, optimizer, communication (exposed), host, bubble on the critical path; sums to the step."""
    memory: list[StageMemory]
    memory_limit_bytes: int | None
    """Memory of the host; None when the device file does not say."""
    flops: float
    """Model FLOPs of one step over all ranks, recomputation included."""
    mfu: float | None
    mfu_convention: str
    source_share: dict[str, float]
    """Share of priced seconds by source: measured, learned, analytic, host. Sums to 1."""
    out_of_range: dict[str, float]
    """Op -> share of the step priced outside the measured range."""
    unknown_ops: dict[str, int]
    """Operators without a rule of their own: priced by their traffic; calls per step."""
    inputs: dict[str, Any]
    """What reproduces the answer: hash of the device file, calibration run, versions, settings."""
    samples_per_step: int
    ops: list[OpCost] = field(default_factory=list, repr=False)
    advice: str = ""
    """The one measurement that would narrow the interval most."""
    _timeline: Callable[[], Timeline] | None = field(default=None, repr=False, compare=False)

    @property
    def fits(self) -> bool | None:
        """Whether all ranks' tensors fit in the host's memory; None when the memory is not known."""
        if self.memory_limit_bytes is None:
            return None
        return self.total_memory_bytes <= self.memory_limit_bytes

    @property
    def total_memory_bytes(self) -> int:
        """Peak tensor bytes of all ranks of the host together (peaks of the stages summed)."""
        members = self.inputs.get("ranks_per_stage", 1)
        return sum(stage.peak_bytes for stage in self.memory) * members

    @property
    def peak_memory_bytes(self) -> int:
        """Peak tensor bytes of the fullest rank."""
        return max((stage.peak_bytes for stage in self.memory), default=0)

    @property
    def samples_per_s(self) -> float:
        """Training throughput over all ranks."""
        return self.samples_per_step / self.step_time_s

    def timeline(self) -> Timeline:
        """The simulated step, for a viewer. Built when asked for."""
        assert self._timeline is not None, "a prediction read from JSON has no timeline"
        return self._timeline()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; units are in the names."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "prediction",
            "workload": self.workload,
            "plan": self.plan,
            "cluster": self.cluster,
            "step_time_s": self.step_time_s,
            "interval_s": {"low": self.low_s, "high": self.high_s, "coverage": 0.8},
            "parts_s": self.parts_s,
            "memory": [
                {
                    "stage": stage.stage,
                    "peak_bytes": stage.peak_bytes,
                    "parts_bytes": stage.parts_bytes,
                    "peak_at_s": stage.peak_at_s,
                }
                for stage in self.memory
            ],
            "memory_limit_bytes": self.memory_limit_bytes,
            "peak_memory_bytes": self.peak_memory_bytes,
            "fits": self.fits,
            "flops": self.flops,
            "mfu": self.mfu,
            "mfu_convention": self.mfu_convention,
            "samples_per_s": self.samples_per_s,
            "samples_per_step": self.samples_per_step,
            "source_share": self.source_share,
            "out_of_range_share": self.out_of_range,
            "unknown_ops": self.unknown_ops,
            "inputs": self.inputs,
            "advice": self.advice,
            "ops": [vars(cost) for cost in self.ops],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Prediction:
        """Rebuild from `to_dict` (without the timeline)."""
        interval = data["interval_s"]
        return cls(
            workload=data["workload"],
            plan=data["plan"],
            cluster=data["cluster"],
            step_time_s=data["step_time_s"],
            low_s=interval["low"],
            high_s=interval["high"],
            parts_s=data["parts_s"],
            memory=[StageMemory(**stage) for stage in data["memory"]],
            memory_limit_bytes=data["memory_limit_bytes"],
            flops=data["flops"],
            mfu=data["mfu"],
            mfu_convention=data["mfu_convention"],
            source_share=data["source_share"],
            out_of_range=data["out_of_range_share"],
            unknown_ops=data["unknown_ops"],
            inputs=data["inputs"],
            samples_per_step=data["samples_per_step"],
            ops=[OpCost(**cost) for cost in data.get("ops", [])],
            advice=data.get("advice", ""),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.workload} under {self.plan_text} on {self.cluster}",
            f"  step    {_time(self.step_time_s)}  (80 %: {_time(self.low_s)} to {_time(self.high_s)}), "
            f"{self.samples_per_s:,.1f} samples/s",
            "  parts   " + ", ".join(f"{name} {_time(value)}" for name, value in self.parts_s.items() if value > 0),
            "  memory  "
            + ", ".join(f"{stage.stage} {stage.peak_bytes / GIB:.3f} GiB" for stage in self.memory)
            + {True: " (fits)", False: " (does NOT fit)", None: ""}[self.fits],
            "  prices  "
            + ", ".join(f"{share:.0%} {name}" for name, share in self.source_share.items() if share > 0.004),
        ]
        if self.mfu is not None:
            lines.append(f"  MFU     {self.mfu:.1%} ({self.mfu_convention})")
        if self.unknown_ops:
            lines.append("  unknown " + ", ".join(f"{name} ×{calls}" for name, calls in self.unknown_ops.items()))
        return "\n".join(lines)

    @property
    def plan_text(self) -> str:
        """The plan as it would be typed."""
        from ..datasets.plan import Plan

        return str(Plan.from_dict(self.plan))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} us"
