"""Measured collective curves: seconds over bytes by (kind, ranks), log-log between the measured sizes.

Beyond the largest size the last bandwidth holds, below the smallest the latency. A number of ranks that was not
measured is reached from the nearest one by the ring algorithm's ratio of traffic (bandwidth part) and steps (latency).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...workload.program import Collective
from .ring import steps, traffic_share

_SPREAD_OTHER_RANKS = 0.4
_SPREAD_DEFAULT = 0.15


@dataclass(frozen=True)
class CollectivePrice:
    """Seconds of one collective with idle compute, its log-spread, the cores it uses per rank, and its source."""

    time_s: float
    spread: float
    cores: float
    source: str


@dataclass(frozen=True)
class _Curve:
    log_bytes: np.ndarray
    log_time: np.ndarray
    cores: np.ndarray
    spread: np.ndarray

    def at(self, size_bytes: float) -> tuple[float, float, float]:
        x = np.log(max(size_bytes, 1.0))
        log_time = float(np.interp(x, self.log_bytes, self.log_time))
        if x > self.log_bytes[-1]:
            log_time += x - self.log_bytes[-1]
        cores = float(np.interp(x, self.log_bytes, self.cores))
        return float(np.exp(log_time)), cores, float(np.interp(x, self.log_bytes, self.spread))


class CollectiveCurves:
    """The COLLECTIVES table of a device file, ready to be asked."""

    def __init__(self, rows: pd.DataFrame) -> None:
        rows = rows[rows.time_s.notna() & (rows.time_s > 0)]
        idle = rows[rows.compute.fillna("idle") == "idle"]
        self._curves: dict[tuple[str, int], _Curve] = {}
        for (kind, ranks), group in idle.groupby(["kind", "ranks"]):
            table = group.groupby("bytes")[["time_s", "core_share", "spread"]].median().sort_index()
            sizes = np.maximum(table.index.to_numpy(dtype=float), 1.0)
            self._curves[str(kind), int(ranks)] = _Curve(
                np.log(sizes),
                # A longer message never takes less time; a dip is noise.
                np.maximum.accumulate(np.log(table.time_s.to_numpy(dtype=float))),
                table.core_share.astype(float).fillna(1.0).to_numpy(),
                table.spread.astype(float).fillna(_SPREAD_DEFAULT).to_numpy(),
            )

    def price(self, collective: Collective) -> CollectivePrice | None:
        """Price of one collective, or None when its kind was never measured."""
        if collective.ranks <= 1 and collective.kind != "send_recv":
            return CollectivePrice(0.0, 0.0, 0.0, "analytic")
        exact = self._curves.get((collective.kind, collective.ranks))
        if exact is not None:
            time_s, cores, spread = exact.at(collective.bytes)
            return CollectivePrice(time_s, float(np.hypot(spread, 0.05)), cores, "measured")
        measured = [ranks for kind, ranks in self._curves if kind == collective.kind]
        if not measured:
            return None
        nearest = min(measured, key=lambda ranks: (abs(ranks - collective.ranks), ranks))
        time_s, cores, spread = self._curves[collective.kind, nearest].at(collective.bytes)
        latency_s = min(time_s, self._curves[collective.kind, nearest].at(1.0)[0])
        scaled_s = latency_s * steps(collective.kind, collective.ranks) / steps(collective.kind, nearest) + (
            time_s - latency_s
        ) * traffic_share(collective.kind, collective.ranks) / traffic_share(collective.kind, nearest)
        return CollectivePrice(scaled_s, float(np.hypot(spread, _SPREAD_OTHER_RANKS)), cores, "analytic")
