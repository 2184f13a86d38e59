"""Program: what one rank does in one training step, in program order, as plain data without any time.

A program is what every source of work ends as: a traced torch module, a recorded profile, a transformer written from
its config. Lowering reads programs and knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from ...datasets.ops import Op


class Kind(IntEnum):
    """What one entry of a program does."""

    OP = 0
    """Run op `index`."""
    COLLECTIVE = 1
    """Start collective `index`; the rank goes on."""
    WAIT = 2
    """Wait for the collective started by entry `index`."""
    READY = 3
    """The gradient of a parameter is final; `index` is its size in bytes."""
    ALLOC = 4
    """A storage of `index` bytes comes to life; `category` says what it holds."""
    FREE = 5
    """A storage of `index` bytes is released."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective call as every member of its group sees it."""

    kind: str
    """all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv or barrier."""
    bytes: int
    """Full buffer in the sense of nccl-tests; the message for send_recv."""
    ranks: int
    """Members of the group."""
    axis: str
    """Mesh axis that the group spans: pp, dp, fsdp or tp."""
    dtype: str = "fp32"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a program."""

    kind: Kind
    index: int
    phase: str = "other"
    category: str = ""
    """Memory category of ALLOC and FREE: parameters, gradients, optimizer, activations or temporary."""


@dataclass
class Program:
    """One rank's step: unique ops and collectives, and the entries that use them in order."""

    ops: list[Op] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    resident_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes that live before the step starts, by memory category."""
    host_kind: str = "eager"
    """What issues the ops: `eager`, or `dtensor` where each op passes through DTensor dispatch."""

    _op_index: dict[Op, int] = field(default_factory=dict, repr=False)
    _collective_index: dict[Collective, int] = field(default_factory=dict, repr=False)

    def add_op(self, op: Op, phase: str) -> None:
        """Append one call of `op`."""
        index = self._op_index.setdefault(op, len(self.ops))
        if index == len(self.ops):
            self.ops.append(op)
        self.entries.append(Entry(Kind.OP, index, phase))

    def add_collective(self, collective: Collective, phase: str, *, wait: bool = True) -> int:
        """Append the start of a collective and, by default, the wait for it; returns the entry number of the start."""
        index = self._collective_index.setdefault(collective, len(self.collectives))
        if index == len(self.collectives):
            self.collectives.append(collective)
        start = len(self.entries)
        self.entries.append(Entry(Kind.COLLECTIVE, index, phase))
        if wait:
            self.add_wait(start, phase)
        return start

    def add_wait(self, start: int, phase: str) -> None:
        """Append the wait for the collective started by entry `start`."""
        self.entries.append(Entry(Kind.WAIT, start, phase))

    def count(self) -> Counter[Op]:
        """How often each unique op runs in one step."""
        return Counter(self.ops[entry.index] for entry in self.entries if entry.kind is Kind.OP)

    @property
    def flops(self) -> float:
        """Floating-point operations of one step of this rank."""
        return sum(self.ops[entry.index].flops for entry in self.entries if entry.kind is Kind.OP)

    def unknown_ops(self) -> dict[str, int]:
        """Operators without a rule in `datasets.ops`, with their calls per step."""
        named = Counter(op.name for op, calls in self.count().items() for _ in range(calls) if op.family == "unknown")
        return dict(named)
