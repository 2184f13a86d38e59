"""Workload: everything needed to train one step of something, and to rebuild it in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

TP_STYLES = ("colwise", "rowwise", "shared")
"""How a module is split over tensor-parallel ranks: a linear or embedding by its outputs (`colwise`) or inputs
(`rowwise`); `shared` is for a module whose one input feeds several colwise ones (q, k, v): its gradient is then
all-reduced once instead of once for each."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is trained. The functions take no device and no seed: the caller sets both around them."""

    name: str
    """Short name for folders and tables, `gpt`."""
    build: Callable[[], torch.nn.Module]
    """Makes a new module with freshly drawn parameters. Its blocks, the units of pipeline stages, sharding and
    recompute, are the children of the top `nn.Sequential`."""
    make_batch: Callable[[int], tuple[tuple[Any, ...], Any]]
    """Samples -> (inputs, target). `inputs` is a tuple of tensors with the samples in dim 0, and so is `target`."""
    loss: Callable[[Any, Any], torch.Tensor]
    """(module output, target) -> scalar, the mean over the samples, so that halves of a batch average to the whole."""
    make_optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    """Parameters -> optimizer."""
    batch: int
    """Global batch in samples when the plan names none."""
    reference: str | None = None
    """What `load` takes to make this again in another process; None for a workload that was not loaded."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the factory, defaults included; `load(reference, **settings)` rebuilds this workload."""
    tp_styles: Mapping[str, str] = field(default_factory=dict)
    """Module name pattern (`*.attention.q`) -> one of `TP_STYLES`; empty when it has no tensor parallel form."""
    tp_divides: Mapping[str, int] = field(default_factory=dict)
    """Numbers that tp must divide, by what they count (`heads` -> 4)."""

    def global_batch_of(self, plan: Any) -> int:
        """Samples per step over all ranks: the plan's, else the workload's own. Checked to divide (`PlanError`)."""
        global_batch = plan.global_batch or self.batch
        plan.micro_batch_of(global_batch)
        return global_batch

    def __str__(self) -> str:
        return self.reference or self.name
