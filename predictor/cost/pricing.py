"""The pricing chain: each unique op row becomes seconds, once, through measured -> learned -> analytic.

Every price carries its source and its spread. `learned` is the place of models trained on shipped measurements; until
such a model is registered the chain goes from measured to analytic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...datasets.machine import Machine
from ...datasets.ops import Op
from ..hardware.cluster import Cluster, context_rows
from .analytic import analytic_time_s
from .calibration import Calibration
from .collectives import CollectiveCurves, CollectivePrice
from .host import HostCosts
from .measured import Lookup, MeasuredTable, measured_rows

_ANALYTIC_SPREAD = 0.6
# A slow-down below this is noise of the two contexts, not contention.
_LEAST_SLOWDOWN = 1.03


@dataclass(frozen=True)
class Price:
    """Seconds of one call alone on the host, its log-spread, where it came from, and its share of memory bandwidth."""

    time_s: float
    spread: float
    source: str
    in_range: bool
    memory_use: float
    """Part of the host's memory bandwidth taken while running alone; 0 when companions do not slow it."""


class Pricer:
    """Prices ops, collectives and host work for ranks of `threads` threads on one cluster."""

    def __init__(self, cluster: Cluster, *, threads: int, calibration: Calibration | None = None) -> None:
        self.cluster = cluster
        self.threads = threads
        self.calibration = calibration
        machine: Machine = cluster.machine
        self.device = cluster.device(threads)
        alone = context_rows(machine.ops, threads, 1)
        together = context_rows(machine.ops, threads, cluster.cores)
        self._alone = MeasuredTable(measured_rows(machine.ops, threads=alone[0], processes=alone[1]), self.device)
        self._companions = together[1]
        self._together = (
            MeasuredTable(measured_rows(machine.ops, threads=together[0], processes=together[1]), self.device)
            if together[1] > 1 and together[0] == alone[0]
            else None
        )
        self.host = HostCosts.from_rows(machine.host, floor_s=self.device.launch_s)
        self.curves = CollectiveCurves(machine.collectives)
        self._cache: dict[tuple[Op, str], Price] = {}

    def price(self, op: Op, phase: str) -> Price:
        """Price of one call of `op`; `phase` matters to the calibration only."""
        key = (op, phase)
        if key not in self._cache:
            self._cache[key] = self._price(op, phase)
        return self._cache[key]

    def prices(self, ops: Sequence[tuple[Op, str]]) -> list[Price]:
        """Prices of many ops; equal ones are priced once."""
        return [self.price(op, phase) for op, phase in ops]

    def _price(self, op: Op, phase: str) -> Price:
        if op.family == "view":
            return Price(0.0, 0.0, "measured", True, 0.0)
        found = self._alone.lookup(op)
        if found is None:
            time_s, spread, source, in_range = analytic_time_s(op, self.device), _ANALYTIC_SPREAD, "analytic", False
        else:
            source = "measured" if found.own_group else "analytic"
            time_s, spread, in_range = found.time_s, found.spread, found.in_range
        if self.calibration is not None:
            factor, spread = self.calibration.op_factor(op, phase, spread)
            time_s *= factor
        return Price(time_s, spread, source, in_range, self._memory_use(op, found))

    def _memory_use(self, op: Op, alone: Lookup | None) -> float:
        if self._together is None or alone is None:
            return 0.0
        together = self._together.lookup(op)
        if together is None:
            return 0.0
        slowdown = min(max(together.time_s / alone.time_s, 1.0), float(self._companions))
        # Companions that each take `slowdown / companions` of the resource stretch one another by `slowdown`.
        return slowdown / self._companions if slowdown >= _LEAST_SLOWDOWN else 0.0

    def collective(self, collective: object) -> CollectivePrice | None:
        """Price of a collective with idle compute, or None when its kind was not measured."""
        return self.curves.price(collective)  # type: ignore[arg-type]
