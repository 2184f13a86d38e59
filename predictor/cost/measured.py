"""Measured prices: interpolation between measured shapes, in log space, on the ratio to the analytic price.

Interpolating the ratio and not the time keeps the trend right between and beyond the measured shapes: far away the
ratio stays what it was at the edge and the analytic model carries the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...datasets.ops import Op
from ..hardware.device import Device
from .analytic import analytic_time_s
from .features import coordinates, group_of, kin_of

if TYPE_CHECKING:
    import pandas as pd

_NEIGHBOURS = 10
_EXACT = 1e-6
# Beyond this distance (log2 units: a factor of 4 in one dim) an op counts as outside the measured range.
_IN_RANGE = 2.0
# Spread of a ratio per unit of distance, and for a price borrowed from the wider group: medians of leave-one-out
# residuals over our own machine sweep.
_SPREAD_PER_UNIT = 0.10
_SPREAD_KIN = 0.35


@dataclass(frozen=True)
class Lookup:
    """Answer for one op: seconds, log-spread, distance to the nearest measured shape, and whether that is its kind."""

    time_s: float
    spread: float
    distance: float
    own_group: bool

    @property
    def in_range(self) -> bool:
        """True when a measured shape of the op's own group is near."""
        return self.own_group and self.distance <= _IN_RANGE


@dataclass
class _Points:
    where: np.ndarray  # (rows, coordinates)
    log_ratio: np.ndarray  # (rows,)
    spread: np.ndarray  # (rows,)


class MeasuredTable:
    """Measured op rows of one context (device, threads, processes at once), ready to be asked for any op."""

    def __init__(self, rows: Sequence[tuple[Op, float, float]], device: Device) -> None:
        """`rows` holds (op, seconds per call, relative spread)."""
        self.device = device
        own: dict[str, list[tuple[Op, float, float]]] = {}
        kin: dict[str, list[tuple[Op, float, float]]] = {}
        for row in rows:
            own.setdefault(group_of(row[0]), []).append(row)
            kin.setdefault(kin_of(row[0]), []).append(row)
        self._own = {name: self._points(group) for name, group in own.items()}
        self._kin = {name: self._points(group) for name, group in kin.items()}
        self._cache: dict[Op, Lookup | None] = {}

    def __len__(self) -> int:
        return sum(len(points.log_ratio) for points in self._own.values())

    def _points(self, rows: Iterable[tuple[Op, float, float]]) -> _Points:
        rows = list(rows)
        where = np.array([coordinates(op) for op, _, _ in rows])
        ratio = np.array([np.log(time_s / analytic_time_s(op, self.device)) for op, time_s, _ in rows])
        return _Points(where, ratio, np.array([spread for _, _, spread in rows]))

    def lookup(self, op: Op) -> Lookup | None:
        """Price of `op`, or None when neither its group nor its wider group was measured."""
        if op not in self._cache:
            self._cache[op] = self._lookup(op)
        return self._cache[op]

    def _lookup(self, op: Op) -> Lookup | None:
        own = self._own.get(group_of(op))
        points = own or self._kin.get(kin_of(op))
        if points is None:
            return None
        log_ratio, spread, distance = _interpolate(points, coordinates(op))
        spread = float(np.hypot(spread, _SPREAD_PER_UNIT * distance))
        if own is None:
            spread = float(np.hypot(spread, _SPREAD_KIN))
        return Lookup(analytic_time_s(op, self.device) * float(np.exp(log_ratio)), spread, distance, own is not None)


def _interpolate(points: _Points, at: np.ndarray) -> tuple[float, float, float]:
    """Local linear fit of the log ratio around `at`; returns (log ratio, spread, distance to the nearest row)."""
    offset = points.where - at
    distance = np.sqrt((offset**2).sum(axis=1))
    order = np.argsort(distance, kind="stable")[:_NEIGHBOURS]
    nearest = float(distance[order[0]])
    if nearest < _EXACT or len(order) == 1:
        same = order[distance[order] < max(_EXACT, nearest + _EXACT)]
        return float(points.log_ratio[same].mean()), float(points.spread[same].mean()), nearest
    reach = float(distance[order[-1]]) * 1.05 + 1e-9
    # Tricube kernel over the reach, sharpened by closeness, so that the enclosing rows decide.
    weight = (1.0 - (distance[order] / reach) ** 3) ** 3 / (0.25 + distance[order] ** 2)
    weight /= weight.sum()
    value = points.log_ratio[order]
    centre = weight @ offset[order]
    mean = float(weight @ value)
    design = offset[order] - centre
    # Ridge: a direction in which the neighbours barely differ gets no slope.
    gram = design.T @ (design * weight[:, None]) + 0.15 * np.eye(design.shape[1])
    slope = np.linalg.solve(gram, design.T @ (weight * (value - mean)))
    predicted = mean - float(slope @ centre)
    # The fit may bend beyond what its neighbours showed, but not far.
    low, high = float(value.min()), float(value.max())
    predicted = float(np.clip(predicted, low - 0.2, high + 0.2))
    residual = value - (mean + design @ slope)
    spread = float(np.sqrt(weight @ residual**2))
    return predicted, float(np.hypot(spread, weight @ points.spread[order])), nearest


def op_of_row(row: object) -> Op:
    """The `Op` key of one row of an OPS table (a named tuple of `DataFrame.itertuples`)."""
    shape = json.loads(row.shape) if row.shape else {}  # type: ignore[attr-defined]
    return Op(
        op=row.op, name=row.name, direction=row.direction, dtype=row.dtype,  # type: ignore[attr-defined]
        b=int(row.b), m=int(row.m), n=int(row.n), k=int(row.k),  # type: ignore[attr-defined]
        shape=tuple(sorted(shape.items())), flops=float(row.flops),  # type: ignore[attr-defined]
        bytes_read=float(row.bytes_read), bytes_written=float(row.bytes_written),  # type: ignore[attr-defined]
    )  # fmt: skip


def measured_rows(ops: pd.DataFrame, *, threads: int, processes: int) -> list[tuple[Op, float, float]]:
    """Rows of an OPS table measured in one context, as (op, seconds, spread)."""
    chosen = ops[(ops.threads == threads) & (ops.processes == processes) & ops.time_s.notna() & (ops.time_s > 0)]
    return [
        (
            op_of_row(row),
            float(row.time_s),
            0.0 if row.spread is None or row.spread != row.spread else float(row.spread),
        )
        for row in chosen.itertuples(index=False, name="Row")
    ]
