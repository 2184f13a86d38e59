"""OpPricer: a table of op rows on accelerators -> seconds, interval, source, range. Needs no training library.

The chain is measured -> interpolated -> learned -> analytic. Measured: a row equal in everything that decides the time.
Learned: base x correction, with what was learned of the row's own group where its device was measured. Interpolated:
the learned price and what it misses at measured neighbours. Analytic: the base alone, for ops that no model knows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ....datasets.catalog import DeviceFacts, device
from ....datasets.errors import InputError
from ....datasets.ops.table import Labels, OpTable
from .calibration import DEFAULT_KERNEL, KERNELS, GaussianCalibration, columns
from .families import NAMES, NOT_CAUSAL, families_of
from .lines import MeasuredLines
from .lookup import MeasuredOps
from .model import SITUATIONS, SIZES_S, FamilyModel
from .roofline import roofline_s
from .rows import Rows, framework_word, groups_of
from .work import with_work

MODELS = Path(__file__).parent / "models"
SOURCES = ("measured", "interpolated", "learned", "analytic")
_MEASURED, _INTERPOLATED, _LEARNED, _ANALYTIC = range(len(SOURCES))
_KNOWN, _SIBLING, _BLIND = range(len(SITUATIONS))
_MEASURED_WIDTH = 0.08
"""Half width of a looked-up price, log units: repeats of one GEMM over versions differ by 1.16x (median of max/min)."""
_ANALYTIC_WIDTH = 0.8
_FOREIGN_DIRECTION = 0.2
"""Added to the half width of a backward that nobody measured, in squares."""
_WIDTH_AT_NEIGHBOUR, _WIDTH_PER_OCTAVE = 0.5, 0.3
"""Width of an interpolated price over that of the learned one: 80 % quantiles on held-out shapes of five devices
(A100-SXM, A40, H200, GB300, RTX PRO SE) are 0.50 at 0.05 octaves, 0.57 at 0.2, 0.70 at 0.45, 0.74 at 0.8."""
_LEAST_OVER_ROOFLINE = 0.5
"""No interpolation ends further below the roofline; what is measured there was counted otherwise."""
_CHUNK = 16_384


@dataclass(frozen=True, eq=False)
class OpPrices:
    """Prices of rows, arrays of one length."""

    time_s: np.ndarray
    low_s: np.ndarray
    high_s: np.ndarray
    """80 % interval."""
    bound_s: np.ndarray
    """Roofline: FLOPs at peak or bytes at full bandwidth, the larger."""
    source: Labels
    """measured | interpolated | learned | analytic."""
    in_range: np.ndarray
    """True where the row's device was measured and its shape lies within the shapes measured there."""
    from_forward: np.ndarray
    """True where a backward was priced from its forward because none was measured."""

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass
class OpPricer:
    """Prices tables of ops with fitted models, measured rows and calibrations."""

    models: dict[str, FamilyModel]
    measured: MeasuredOps | None = None
    lines: MeasuredLines | None = None
    calibrations: dict[tuple[str, str], GaussianCalibration] = field(default_factory=dict)
    """By (device key, family)."""
    threads: int = 2

    @classmethod
    def load(cls, folder: Path = MODELS) -> OpPricer:
        """Every model of a folder. Raises `InputError` when there is none or one is damaged."""
        models = {}
        for path in sorted(folder.glob("*.npz")):
            model = FamilyModel.load(path)
            models[model.family] = model
        if not models:
            raise InputError(f"{folder}: holds no model of op prices; make them with foretrace datasets fit")
        return cls(models)

    def price(self, table: OpTable) -> OpPrices:
        """Price every row. Raises `UsageError` for a device that the catalog does not know."""
        table, devices = canonical(table)
        chunks = [np.arange(begin, min(begin + _CHUNK, len(table))) for begin in range(0, len(table), _CHUNK)]
        if len(chunks) < 2 or self.threads < 2:
            parts = [self._price(table.take(chunk), devices) for chunk in chunks]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                parts = list(pool.map(lambda chunk: self._price(table.take(chunk), devices), chunks))
        return _joined(parts)

    def remember(self, table: OpTable) -> None:
        """Look up and interpolate between the measured rows of `table` from now on, and only those."""
        assert table.time_s is not None, "measured rows have times"
        table, _ = canonical(table.take(np.flatnonzero((table.time_s > 0) & np.isfinite(table.time_s))))
        assert table.time_s is not None
        prices = replace(self, measured=None, lines=None, calibrations={}).price(table)
        self.measured = MeasuredOps.of(table)
        self.lines = MeasuredLines.of(table, np.log(table.time_s / prices.time_s))

    def calibrate(self, table: OpTable) -> dict[tuple[str, str], int]:
        """Learn from timings of a user's own devices; how many were used by (device, family)."""
        assert table.time_s is not None, "timings have times"
        table, devices = canonical(table)
        used: dict[tuple[str, str], int] = {}
        assert table.time_s is not None
        family, timed = families_of(table), table.time_s > 0
        before = replace(self, measured=None, lines=None, calibrations={}).price(table)
        for code in np.unique(table.device.codes):
            for index in np.unique(family):
                mask = (table.device.codes == code) & (family == index) & timed
                name = NAMES[index]
                if name not in self.models or not mask.any():
                    continue
                part = table.take(mask)
                rows = Rows.of(int(index), part, devices)
                features = rows.shape[:, columns(self.models[name].shape_features, name)].astype(np.float64)
                fitted = GaussianCalibration(KERNELS.get(name, DEFAULT_KERNEL))
                key = (table.device.names[code], name)
                assert part.time_s is not None
                self.calibrations[key] = fitted.fit(features, np.log(part.time_s / before.time_s[mask]))
                used[key] = int(mask.sum())
        return used

    def _price(self, table: OpTable, devices: dict[str, DeviceFacts]) -> OpPrices:
        count = len(table)
        out = OpPrices(
            np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count),
            Labels(np.full(count, _ANALYTIC, np.int32), SOURCES), np.zeros(count, bool), np.zeros(count, bool),
        )  # fmt: skip
        family = families_of(table)
        for index in np.unique(family):
            mask = np.flatnonzero(family == index)
            rows = Rows.of(int(index), table if len(mask) == count else table.take(mask), devices)
            self._price_family(NAMES[index], rows, out, mask)
        if self.lines is not None:
            said, distance = self.lines.interpolate(table)
            at = np.flatnonzero(np.isfinite(distance))
            ratio = np.maximum(np.exp(said[at]), out.bound_s[at] * _LEAST_OVER_ROOFLINE / out.time_s[at])
            # Half widths shrink to what neighbours leave open, all in log units.
            share = _WIDTH_AT_NEIGHBOUR + _WIDTH_PER_OCTAVE * distance[at]
            width = np.log(out.high_s[at] / out.time_s[at]) * share
            out.time_s[at] *= ratio
            out.low_s[at], out.high_s[at] = out.time_s[at] * np.exp(-width), out.time_s[at] * np.exp(width)
            out.source.codes[at] = _INTERPOLATED
        if self.measured is not None:
            found = self.measured.lookup(table)
            at = np.flatnonzero(np.isfinite(found))
            out.time_s[at] = found[at]
            out.low_s[at], out.high_s[at] = (found[at] * np.exp(sign * _MEASURED_WIDTH) for sign in (-1, 1))
            out.source.codes[at], out.in_range[at], out.from_forward[at] = _MEASURED, True, False
        return out

    def _price_family(self, name: str, rows: Rows, out: OpPrices, at: np.ndarray) -> None:
        bound = roofline_s(rows.table, rows.facts, rows.at)
        out.bound_s[at] = bound
        model = self.models.get(name)
        if model is None:
            log_s, width = np.log(rows.base_s), np.full(len(rows), _ANALYTIC_WIDTH)
            low, high = np.exp(log_s - width), np.exp(log_s + width)
            out.time_s[at], out.low_s[at], out.high_s[at] = np.exp(log_s), low, high
            return
        flags = rows.flags(model.flags)
        correction = model.blind_log(rows.shape, rows.device, flags)
        situation, group, direction_known = _situations(model, rows)
        own = np.flatnonzero(situation != _BLIND)
        if len(own):
            correction[own] += model.known_log(rows.shape[own], rows.device[own], flags[own], group[own])
        width = model.widths[situation, np.searchsorted(SIZES_S, rows.base_s)]
        in_range = np.zeros(len(rows), bool)
        inside = (rows.shape[own] >= model.low[group[own]] - 1e-4) & (rows.shape[own] <= model.high[group[own]] + 1e-4)
        in_range[own] = inside.all(axis=1)
        known_op = rows.table.op.map(lambda op: op in model.card["ops"], bool)
        correction = np.where(known_op, correction, 0.0)
        guessed = known_op & ~direction_known
        width = np.where(known_op, np.where(guessed, np.hypot(width, _FOREIGN_DIRECTION), width), _ANALYTIC_WIDTH)
        correction, width = self._calibrated(name, model, rows, correction, width)
        time_s = np.maximum(rows.base_s * np.exp(correction), bound * model.least_over_roofline)
        out.time_s[at] = time_s
        out.low_s[at], out.high_s[at] = time_s * np.exp(-width), time_s * np.exp(width)
        out.source.codes[at] = np.where(known_op, _LEARNED, _ANALYTIC)
        out.in_range[at] = in_range & known_op
        out.from_forward[at] = guessed & rows.table.direction.map(lambda name: name.startswith("bwd"), bool)

    def _calibrated(
        self, name: str, model: FamilyModel, rows: Rows, correction: np.ndarray, width: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        for code in np.unique(rows.table.device.codes):
            fitted = self.calibrations.get((rows.table.device.names[code], name))
            if fitted is None:
                continue
            mask = rows.table.device.codes == code
            features = rows.shape[:, columns(model.shape_features, name)][mask].astype(np.float64)
            more, spread = fitted.predict(features)
            correction[mask] += more
            width[mask] = np.minimum(width[mask], 1.2816 * np.hypot(spread, fitted.kernel.smooth))
        return correction, width


def canonical(table: OpTable) -> tuple[OpTable, dict[str, DeviceFacts]]:
    """The table with catalog keys, with ops, masks and absent work put right, and the facts by key. Raises
    `UsageError` for an unknown name."""
    facts = {name: device(name) for name in np.array(table.device.names, object)[np.unique(table.device.codes)]}
    names = tuple(facts[name].key if name in facts else name for name in table.device.names)
    distinct = tuple(dict.fromkeys(names))
    codes = np.array([distinct.index(name) for name in names], np.int32)[table.device.codes]
    extras = table.extras
    if "causal" in extras:
        wrong = table.source.map(lambda name: name in NOT_CAUSAL, bool)
        extras = {**extras, "causal": np.where(wrong & ~np.isnan(extras["causal"]), 0.0, extras["causal"])}
    # A GEMM found in a trace is a GEMM.
    op = replace(table.op, names=tuple("matmul" if name == "trace.GEMM" else name for name in table.op.names))
    table = with_work(replace(table, op=op, device=Labels(codes, distinct), extras=extras))
    return table, {entry.key: entry for entry in facts.values()}


def _situations(model: FamilyModel, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(situation, group, direction known) by row."""
    table = rows.table
    parts = (groups_of(table), table.op, rows.context["dtype"], table.direction)
    code = np.zeros(len(table), np.int64)
    for labels in parts:
        code = code * max(1, len(labels.names)) + labels.codes
    _, first, at = np.unique(code, return_index=True, return_inverse=True)
    found = np.array([_borrowed(model, *(labels.names[labels.codes[row]] for labels in parts)) for row in first])
    situation, group, known = found[at].T
    return situation, group, known.astype(bool)


@lru_cache(maxsize=65_536)
def _borrowed(model: FamilyModel, name: str, op: str, dtype: str, direction: str) -> tuple[int, int, bool]:
    """(situation, group, direction known) of rows of group `name`.

    They are known when that group holds their op and dtype. Otherwise they borrow the most alike group of their device:
    one that holds their op and dtype, then of the same source, then of the same framework, then with most rows. A
    level does not carry over to another dtype of another source: a device without any such group is blind.
    """
    key, source, framework = name.split("|", 2)
    word = framework_word(framework)
    best, score, known = -1, (False, -1.0), False
    for index, other in enumerate(model.groups):
        kinds = [(*kind.split("|"), count) for kind, count in model.card["kinds"][other].items()]
        known |= any(own == op and way == direction for own, _, way, _ in kinds)
        other_key, other_source, other_framework = other.split("|", 2)
        exact = sum(count for own, kind, _, count in kinds if own == op and kind == dtype)
        alike = sum(count for _, kind, _, count in kinds if kind == dtype)
        if other_key != key or not (exact or alike or other_source == source):
            continue
        same_word = framework_word(other_framework) == word
        like = 1e12 * (other == name) + 1e11 * (other_source == source) + 1e10 * same_word
        mark = (exact > 0, like + exact + 1e-3 * alike)
        if mark > score:
            best, score = index, mark
    if best < 0:
        return _BLIND, 0, known
    return _KNOWN if score[0] and model.groups[best] == name else _SIBLING, best, known


def _joined(parts: list[OpPrices]) -> OpPrices:
    if not parts:
        empty = np.zeros(0)
        return OpPrices(empty, empty, empty, empty, Labels(np.zeros(0, np.int32), SOURCES), empty > 0, empty > 0)
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("time_s", "low_s", "high_s", "bound_s", "in_range", "from_forward")
    }
    return OpPrices(source=Labels(np.concatenate([part.source.codes for part in parts]), SOURCES), **arrays)
