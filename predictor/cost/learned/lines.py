"""Between measured rows: what a price missed at a row's neighbours along one dim is most of what it misses there.

A line is all measured rows that are equal but for one dim (tokens of a GEMM, keys of a decode step). Between two of
them, and a little beyond the last, the log of measured over price is interpolated in the log of that dim; lines along
several dims are averaged, near neighbours counting more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....datasets.ops.table import OpTable
from .lookup import row_keys

AXES = ("m", "n", "k", "b")
"""Dims that lines run along; `b` is the batch of attention and of batched GEMMs."""
FARTHEST = 1.0
"""Octaves from the nearer neighbour beyond which nothing is said."""
TRUST = 0.5
"""Distance in octaves at which half of the neighbours' residual is believed."""


@dataclass(frozen=True, eq=False)
class MeasuredLines:
    """Residuals of measured rows, ordered along each dim."""

    keys: dict[str, np.ndarray]
    """By dim: uint64 line of each row, sorted."""
    octaves: dict[str, np.ndarray]
    """log2 of the dim, rising within a line."""
    residual: dict[str, np.ndarray]
    """log(measured / price)."""

    @classmethod
    def of(cls, table: OpTable, residual: np.ndarray) -> MeasuredLines:
        """Lines of the rows of `table`, whose prices missed by `residual` (log units); not finite ones are left out."""
        keys, octaves, kept = {}, {}, {}
        for name in AXES:
            value = getattr(table, name)
            rows = np.flatnonzero(np.isfinite(value) & np.isfinite(residual))
            key, octave = row_keys(table.take(rows), without=name), np.log2(value[rows])
            order = np.lexsort((octave, key))
            key, octave, rows = key[order], octave[order], rows[order]
            # Repeats of one row count once, with the mean of their residuals.
            first = np.flatnonzero(np.r_[True, (np.diff(key) != 0) | (np.diff(octave) > 0)]) if len(key) else rows
            means = (
                np.add.reduceat(residual[rows], first) / np.diff(np.r_[first, len(rows)]) if len(key) else residual[:0]
            )
            keys[name], octaves[name], kept[name] = key[first], octave[first], means
        return cls(keys, octaves, kept)

    def interpolate(self, table: OpTable) -> tuple[np.ndarray, np.ndarray]:
        """(log correction, distance in octaves to the nearer neighbour) by row; 0 and infinite where no line passes."""
        total, weight = np.zeros(len(table)), np.zeros(len(table))
        nearest = np.full(len(table), np.inf)
        for name in AXES:
            value = getattr(table, name)
            rows = np.flatnonzero(np.isfinite(value))
            if not len(rows) or not len(self.keys[name]):
                continue
            said, distance = self._along(name, row_keys(table.take(rows), without=name), np.log2(value[rows]))
            near = distance <= FARTHEST
            rows, said, distance = rows[near], said[near], distance[near]
            own = 1.0 / (1.0 + (distance / TRUST) ** 2)
            total[rows] += own * own * said
            weight[rows] += own
            nearest[rows] = np.minimum(nearest[rows], distance)
        return np.divide(total, weight, out=total, where=weight > 0), nearest

    def _along(self, name: str, key: np.ndarray, octave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, octaves, residual = self.keys[name], self.octaves[name], self.residual[name]
        # Lines are found by key; within a line the place by bisection over all lines at once.
        begin, end = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        low, high = begin.copy(), end.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            below = open_ & (octaves[np.minimum(middle, len(keys) - 1)] < octave)
            low = np.where(below, middle + 1, low)
            high = np.where(open_ & ~below, middle, high)
        left, right = np.clip(low - 1, 0, len(keys) - 1), np.minimum(low, len(keys) - 1)
        has_left, has_right = low > begin, low < end
        to_left = np.where(has_left, octave - octaves[left], np.inf)
        to_right = np.where(has_right, octaves[right] - octave, np.inf)
        both = has_left & has_right
        span = np.where(both, np.maximum(to_left + to_right, 1e-9), 1.0)
        share = np.where(both, np.where(both, to_left, 0.0) / span, np.where(has_right, 1.0, 0.0))
        said = (1.0 - share) * residual[left] + share * residual[right]
        return said, np.minimum(to_left, to_right)
