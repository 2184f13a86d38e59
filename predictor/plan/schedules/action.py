"""Action: one thing that a pipeline stage does for one micro-batch."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Action(NamedTuple):
    """`F` forward or `B` whole backward of one micro-batch."""

    kind: Literal["F", "B"]
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"
