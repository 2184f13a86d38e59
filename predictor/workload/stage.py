"""StagePrograms: the programs of one pipeline stage, or of the whole step where there is no pipeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .program import Program


@dataclass
class StagePrograms:
    """Without a pipeline `step` is everything and the other programs are empty; with one it is the other way round."""

    step: Program = field(default_factory=Program)
    forward: Program = field(default_factory=Program)
    """One micro-batch forward."""
    backward: Program = field(default_factory=Program)
    """One micro-batch backward."""
    optimizer: Program = field(default_factory=Program)
    input_bytes: int = 0
    """Activation that arrives from the stage before, per micro-batch; its gradient goes back."""
    output_bytes: int = 0
    """Activation that leaves for the next stage, per micro-batch."""
    ddp: bool = False
    """Gradients are all-reduced over dp in DistributedDataParallel's buckets."""
    wrappers: Counter[str] = field(default_factory=Counter)
    """Units of wrapper host work per step by kind: fsdp_unit, checkpoint_block, ..."""

    @property
    def first(self) -> Program:
        """The program that knows what is resident."""
        return self.step if self.step.entries else self.forward
