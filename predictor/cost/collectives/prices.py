"""Prices of whole tables of collectives: measured curves where there are any, closed forms bent to the nearest ones.

prices = CollectivePrices.shipped()
prices.price(rows)                       # a frame: time_s, low_s, high_s, source, in_range
prices.with_measured(few).price(rows)    # the same after some timings of the user's own
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ....datasets.errors import UsageError
from .closed_form import constants_of, seconds
from .model import Model, load
from .process import Knots, answer
from .similarity import Traits
from .table import CURVE_COLUMNS, Curve, curves_of, sizes_of

if TYPE_CHECKING:
    import pandas as pd

BINS_PER_OCTAVE = 4
"""Sizes of one curve closer than this are one knot, their median."""
MEASURED, LEARNED, ANALYTIC = "measured", "learned", "analytic"
"""measured: between sizes of the same curve, or of one with another version or element. learned: the closed form
bent to curves of the same device. analytic: no row of the device; the closed form and other devices' curves."""
LARGEST_STEP = 2.0
"""Octaves between two measured sizes beyond which a price between them is not measured any more."""


class CollectivePrices:
    """Measured rows and a fitted model, ready to be asked."""

    def __init__(self, rows: pd.DataFrame, model: Model | None = None) -> None:
        """`rows`: columns of a collectives table with `time_s` (seconds)."""
        self.model = load() if model is None else model
        self._rows = rows
        curves, place = curves_of(rows)
        self._curves = curves
        self._codes: dict[tuple[str, str], int] = {}
        octave = np.log2(rows["bytes"].to_numpy(dtype=float)) if len(rows) else np.empty(0)
        time_s = rows["time_s"].to_numpy(dtype=float) if len(rows) else np.empty(0)
        self.knots = self._knots(curves, place, octave, time_s)
        self._ranges: dict[tuple[object, ...], np.ndarray] = {}
        for index, curve in enumerate(curves):
            own = self.knots.octave[self.knots.curve == index]
            key = _place_of(curve)
            self._ranges[key] = np.union1d(self._ranges.get(key, np.empty(0)), own)
        self._devices = {curve.device for curve in curves}

    @classmethod
    def shipped(cls) -> CollectivePrices:
        """With all sound rows that foretrace ships; read once."""
        return _shipped()

    def with_measured(self, rows: pd.DataFrame) -> CollectivePrices:
        """The same, knowing also some timings (columns as in `__init__`)."""
        import pandas as pd

        return CollectivePrices(pd.concat([self._rows, rows], ignore_index=True), self.model)

    def price(self, rows: pd.DataFrame) -> pd.DataFrame:
        """time_s, low_s, high_s (80 % interval), source and in_range for each row of a table; its index is kept.

        A column `time_s` or `time_us` is not read. Raises `UsageError` for the first row that makes no sense.
        """
        import pandas as pd

        sizes = sizes_of(rows)
        if np.isnan(sizes).any():
            row = int(np.argmax(np.isnan(sizes)))
            raise UsageError(f"row {row}: bytes {rows['bytes'].iloc[row]} makes no sense; give a whole number from 1")
        curves, place = curves_of(rows)
        result = pd.DataFrame(index=rows.index)
        time_s, spread = np.empty(len(rows)), np.empty(len(rows))
        source, inside = np.empty(len(rows), dtype=object), np.zeros(len(rows), dtype=bool)
        traits = Traits(curves, self._codes) if curves else None
        order = np.argsort(place, kind="stable")
        bounds = np.searchsorted(place[order], np.arange(len(curves) + 1))
        for index, curve in enumerate(curves):
            assert traits is not None
            where = order[bounds[index] : bounds[index + 1]]
            unique, back = np.unique(sizes[where], return_inverse=True)
            octaves = np.log2(unique)
            mean, deviation = answer(self.model.levels, self.knots, traits.take(np.array([index])), octaves)
            base = seconds(curve, unique, constants_of(curve, self.model.constants))
            how, known = self._how(curve, octaves)
            widths = np.array([self._half_width(name, sure) for name, sure in zip(how, deviation, strict=True)])
            time_s[where] = (base * np.exp(mean))[back]
            spread[where] = widths[back]
            source[where] = how[back]
            inside[where] = known[back]
        result["time_s"] = time_s
        result["low_s"], result["high_s"] = time_s * np.exp(-spread), time_s * np.exp(spread)
        result["source"], result["in_range"] = source, inside
        return result

    def _half_width(self, how: str, deviation: float) -> float:
        return max(self.model.widths[how] * deviation, self.model.floors[how])

    def _how(self, curve: Curve, octaves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and in_range of each size."""
        own = self._ranges.get(_place_of(curve))
        if own is None:
            name = LEARNED if curve.device in self._devices else ANALYTIC
            return np.full(len(octaves), name, dtype=object), np.zeros(len(octaves), dtype=bool)
        slack = 1.0 / BINS_PER_OCTAVE
        right = np.clip(np.searchsorted(own, octaves), 0, len(own) - 1)
        left = np.clip(right - 1, 0, len(own) - 1)
        dense = (own[right] - own[left] <= LARGEST_STEP) | (np.abs(octaves - own[right]) <= slack)
        inside = (octaves >= own[0] - slack) & (octaves <= own[-1] + slack)
        how = np.where(inside & dense, MEASURED, LEARNED).astype(object)
        return how, inside

    def _knots(self, curves: list[Curve], place: np.ndarray, octave: np.ndarray, time_s: np.ndarray) -> Knots:
        """Rows as knots: one for each curve and bin of sizes."""
        cell = np.round(octave * BINS_PER_OCTAVE).astype(int)
        order = np.lexsort((octave, cell, place))
        starts = (
            np.flatnonzero(np.r_[True, np.diff(place[order]) != 0] | np.r_[True, np.diff(cell[order]) != 0])
            if len(order)
            else np.empty(0, int)
        )
        ends = np.r_[starts[1:], len(order)].astype(int) if len(order) else np.empty(0, int)
        base = np.empty(len(octave))
        for index, curve in enumerate(curves):
            here = place == index
            base[here] = seconds(curve, 2.0 ** octave[here], constants_of(curve, self.model.constants))
        residual = np.log(time_s / base) if len(order) else np.empty(0)
        groups = [order[start:end] for start, end in zip(starts, ends, strict=True)]
        found = np.array([float(np.median(residual[group])) for group in groups])
        middle = np.array([float(np.mean(octave[group])) for group in groups])
        typical = np.array([float(np.median(time_s[group])) for group in groups])
        noise = np.hypot(self.model.noise, self.model.clock_s / np.maximum(typical, 1e-9))
        return Knots(Traits(curves, self._codes), place[order][starts] if len(order) else starts, middle, found, noise)


def _place_of(curve: Curve) -> tuple[object, ...]:
    """What must be equal for a price to count as measured."""
    return (
        curve.kind, curve.device, curve.family, curve.links.topology, curve.ranks, curve.nodes, curve.per_node,
        curve.options,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _shipped() -> CollectivePrices:
    from ....datasets import shipped

    rows = shipped.collectives(parts=(shipped.FIT, shipped.SCORE), columns=[*CURVE_COLUMNS, "bytes", "time_s"])
    return CollectivePrices(rows)
