"""The cases: six workloads, each under at least six plans, and one calibration run each at another batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foretrace.datasets.plan import Plan


@dataclass(frozen=True)
class Case:
    """One (workload, batch, plan) to be predicted and measured."""

    group: str
    workload: str
    settings: dict[str, Any] = field(hash=False)
    plan: Plan

    @property
    def name(self) -> str:
        """`gpt/dp=2,global_batch=8`"""
        return f"{self.group}/{self.plan}"


@dataclass(frozen=True)
class Group:
    """A model, the plans that are compared on it, and the plan (one process, another batch) that calibrates it."""

    name: str
    workload: str
    settings: dict[str, Any] = field(hash=False)
    plans: tuple[str, ...]
    calibration: str

    def cases(self) -> list[Case]:
        """Every plan as a case."""
        return [Case(self.name, self.workload, self.settings, Plan.parse(plan)) for plan in self.plans]


GROUPS = (
    Group(
        "gpt", "gpt", {"layers": 4, "width": 256, "heads": 4, "seq": 128, "vocab": 4096},
        (
            "global_batch=8", "global_batch=8,threads=1", "global_batch=16", "dp=2,global_batch=8",
            "fsdp=2,global_batch=8", "tp=2,global_batch=8", "pp=2,micro_batches=4,schedule=gpipe,global_batch=8",
            "pp=2,micro_batches=4,schedule=1f1b,global_batch=8", "micro_batches=4,global_batch=8",
            "recompute=full,global_batch=8",
        ),
        "global_batch=4",
    ),
    Group(
        "vit", "vit", {"layers": 5, "width": 192, "heads": 4},
        (
            "global_batch=32", "global_batch=32,threads=1", "global_batch=64", "dp=2,global_batch=32",
            "fsdp=2,global_batch=32", "tp=2,global_batch=32", "pp=2,micro_batches=4,schedule=1f1b,global_batch=32",
            "micro_batches=2,global_batch=32", "recompute=full,global_batch=32",
        ),
        "global_batch=16",
    ),
    Group(
        "resnet", "resnet", {},
        (
            "global_batch=16", "global_batch=16,threads=1", "global_batch=32", "dp=2,global_batch=32",
            "fsdp=2,global_batch=32", "pp=2,micro_batches=2,schedule=gpipe,global_batch=32",
            "micro_batches=2,global_batch=32",
        ),
        "global_batch=8",
    ),
    Group(
        "mlp", "mlp", {},
        (
            "global_batch=256", "global_batch=256,threads=1", "global_batch=512", "dp=2,global_batch=256",
            "fsdp=2,global_batch=256", "tp=2,global_batch=256", "pp=2,micro_batches=4,schedule=1f1b,global_batch=256",
            "micro_batches=2,global_batch=256", "recompute=full,global_batch=256",
        ),
        "global_batch=128",
    ),
    Group(
        "dlrm", "dlrm", {},
        (
            "global_batch=1024", "global_batch=1024,threads=1", "global_batch=2048", "dp=2,global_batch=1024",
            "fsdp=2,global_batch=1024", "micro_batches=4,global_batch=2048",
        ),
        "global_batch=512",
    ),
    Group(
        "lstm", "lstm", {},
        (
            "global_batch=16", "global_batch=16,threads=1", "global_batch=32", "dp=2,global_batch=32",
            "fsdp=2,global_batch=32", "pp=2,micro_batches=2,schedule=gpipe,global_batch=32",
        ),
        "global_batch=8",
    ),
    Group(
        "gpt-bf16", "gpt", {"layers": 1, "width": 64, "heads": 2, "seq": 64, "vocab": 256},
        (
            "precision=bf16,global_batch=4", "precision=bf16,global_batch=8", "precision=bf16,global_batch=8,threads=1",
            "precision=bf16,dp=2,global_batch=8", "precision=bf16,micro_batches=2,global_batch=8",
            "precision=bf16,recompute=full,global_batch=8",
        ),
        "precision=bf16,global_batch=2",
    ),
)  # fmt: skip
