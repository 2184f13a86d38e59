"""Processes that measure together: a barrier of microseconds, and agreement on what to do next."""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import Any

from ..rank import RankContext

_COUNTER = struct.Struct("<q")
_LINE = 64  # one cache line per rank, so that waiting ranks do not slow the writers
_SPINS_BEFORE_SLEEP = 20_000


class SpinBarrier:
    """Lets the ranks of one host start an operator within a microsecond or two of each other.

    A barrier over sockets puts the ranks to sleep and wakes them one after the other, which is longer than most
    operators take. A rank that dies is noticed by `launch`, which ends the ones that wait here.
    """

    def __init__(self, context: RankContext) -> None:
        self._rank, self._ranks, self._passed = context.rank, context.world_size, 0
        self._memory: mmap.mmap | None = None
        if self._ranks > 1:
            handle = os.open(context.scratch / "barrier", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(handle, _LINE * self._ranks)
                self._memory = mmap.mmap(handle, _LINE * self._ranks)
            finally:
                os.close(handle)

    def wait(self) -> None:
        """Return when all ranks are here; returns at once for a single rank."""
        if self._memory is None:
            return
        self._passed += 1
        memory, passed = self._memory, self._passed
        _COUNTER.pack_into(memory, _LINE * self._rank, passed)
        for rank in range(self._ranks):
            spins = 0
            while _COUNTER.unpack_from(memory, _LINE * rank)[0] < passed:
                spins += 1
                if spins > _SPINS_BEFORE_SLEEP:
                    time.sleep(1e-4)


def largest(context: RankContext, values: list[float]) -> list[float]:
    """Element by element the largest value over all ranks, the same on each; as given for a single rank."""
    if context.world_size == 1:
        return values
    import torch
    from torch import distributed

    shared = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
    return [float(value) for value in shared.tolist()]


def decided(context: RankContext, wish: bool) -> bool:
    """Rank 0's wish, so that all ranks go on or stop together."""
    if context.world_size == 1:
        return wish
    from torch import distributed

    flag: list[Any] = [wish]
    distributed.broadcast_object_list(flag, src=0)
    return bool(flag[0])
