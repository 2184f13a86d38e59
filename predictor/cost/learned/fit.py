"""Fitting the learned prices: op rows -> one FamilyModel a family. Needs xgboost; pricing does not.

1. Rows that cannot be believed are left out (`believable`).
2. The blind ensemble is fitted on at most 3,000 rows a group and distilled into one set of trees, which is also taught
   what the ensemble says of the same shapes on other devices of the catalog.
3. Known trees learn what groups add to it, from all their rows.
4. Devices are left out in turn, family by family, for the widths of the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....datasets.catalog import devices
from ....datasets.ops.table import Labels, OpTable
from ..analytic.accelerator.facts import facts_row
from .ensemble import BlindEnsemble, group_medians, group_weights, sample_groups
from .families import DEVICE_FEATURES, NAMES, base_prices, device_features, families_of
from .model import SITUATIONS, SIZES_S, FamilyModel
from .roofline import roofline_s
from .rows import Rows, context, flag_names, groups_of
from .trees import Trees, boost

NOMINAL = 0.8


@dataclass(frozen=True)
class Settings:
    """How large the fitted models are."""

    rounds: int = 200
    """Trees of each member of the blind ensemble."""
    blind_rows: int = 1000
    """Most rows of a stratum that the ensemble sees."""
    student_rounds: int = 100
    student_depth: int = 8
    known_rounds: int = 200
    known_depth: int = 8
    known_rows: int = 8000
    """Most rows of a stratum that the known trees see."""
    folds: int = 4
    """Parts that the device families are left out in, for interval widths; 0 leaves the widths at 0.3."""
    seed: int = 0


def believable(table: OpTable) -> np.ndarray:
    """Rows to fit on: measured, not suspect, not known to be wrong.

    Left out: split `suspect`; NeuSight's P4 (its files disagree 3x); optimizer rows, TPU vector rows below the traffic
    that they must move (fused away or another accounting); Vidur rows below 5 us (a clock of 1 us).
    """
    assert table.time_s is not None, "rows without times"
    good = ~table.split.are("suspect") & (table.time_s > 0) & np.isfinite(table.time_s)
    good &= ~(table.source.are("neusight") & table.device.are("P4"))
    good &= ~(table.source.are("vidur") & (table.time_s < 5e-6))
    tpu = table.device.map(lambda name: name.startswith("TPU"), bool)
    return good & ~(tpu & (families_of(table) != NAMES.index("gemm")))


def fit_family(family: int, table: OpTable, settings: Settings, *, say: Callable[[str], None] = print) -> FamilyModel:
    """Fit one family on rows that all belong to it and are all believable."""
    rows = Rows.of(family, table)
    assert table.time_s is not None
    log_ratio = np.log(table.time_s / rows.base_s)
    flags = flag_names(table)
    columns = rows.flags(flags)
    group = groups_of(table)
    # Ops of one group differ as groups do: each (group, op, dtype, direction) counts once.
    stratum = strata(table, group)
    chosen = sample_groups(stratum, most=settings.blind_rows, seed=settings.seed)
    blind = _distilled(family, rows, columns, log_ratio, stratum, chosen, settings)
    predicted = blind.predict(np.hstack([rows.shape, rows.device, columns]))
    offsets = group_medians(log_ratio - predicted, group.codes)
    seen = sample_groups(stratum, most=settings.known_rows, seed=settings.seed)
    code = group.codes.astype(np.float32)[:, None]
    inputs = np.hstack([rows.shape, rows.device, columns, code, offsets[group.codes][:, None].astype(np.float32)])
    target = log_ratio - predicted - offsets[group.codes]
    weight = np.sqrt(group_weights(stratum[seen]))
    known = boost(
        inputs[seen], target[seen], weight, rounds=settings.known_rounds, depth=settings.known_depth, rate=0.15,
        sample_rows=0.8, sample_columns=0.7, seed=settings.seed,
    )  # fmt: skip
    low, high = _ranges(rows.shape, group)
    over = np.log(table.time_s / roofline_s(table, rows.facts, rows.at))
    widths = interval_widths(family, rows, columns, log_ratio, stratum, settings)
    say(f"{NAMES[family]}: {len(table)} rows, {len(group.names)} groups")
    card = {
        "rows": len(table), "rows_fitted_blind": len(chosen), "rows_fitted_known": len(seen),
        "devices": sorted({name for name in table.device.names if table.device.are(name).any()}),
        "sources": sorted({name for name in table.source.names if table.source.are(name).any()}),
        "dtypes": sorted({name for name in table.dtype.names if table.dtype.are(name).any()}),
        "ops": sorted({name for name in table.op.names if table.op.are(name).any()}),
        "kinds": _kinds(table, group),
        "settings": {name: getattr(settings, name) for name in Settings.__dataclass_fields__},
    }  # fmt: skip
    return FamilyModel(
        NAMES[family], shape_names(family), DEVICE_FEATURES, flags, blind, known, group.names, offsets, low, high,
        widths, float(np.exp(np.quantile(over, 0.001))), card,
    )  # fmt: skip


def shape_names(family: int) -> tuple[str, ...]:
    """Names of a family's shape features, in their order."""
    from ..analytic.accelerator import attention, composed, gemm, traffic

    return (
        gemm.FEATURES, attention.FEATURES, composed.CONVOLUTION_FEATURES, composed.RECURRENT_FEATURES,
        composed.EXPERT_FEATURES, traffic.FEATURES,
    )[family]  # fmt: skip


def strata(table: OpTable, group: Labels) -> np.ndarray:
    """Numbers from 0 of (group, op, dtype, direction)."""
    code = group.codes.astype(np.int64)
    for labels in (table.op, table.dtype, table.direction):
        code = code * max(1, len(labels.names)) + labels.codes
    return np.unique(code, return_inverse=True)[1]


def _distilled(
    family: int, rows: Rows, columns: np.ndarray, log_ratio: np.ndarray, stratum: np.ndarray, chosen: np.ndarray,
    settings: Settings,
) -> Trees:  # fmt: skip
    """The blind ensemble as one set of trees over (shape, device, flags)."""
    ensemble = BlindEnsemble(rounds=settings.rounds, rate=0.08, seed=settings.seed)
    ensemble.fit(rows.shape[chosen], rows.device[chosen], columns[chosen], log_ratio[chosen], stratum[chosen])
    shape, device, flags = [rows.shape[chosen]], [rows.device[chosen]], [columns[chosen]]
    elsewhere = _elsewhere(family, rows, chosen, settings.seed)
    if elsewhere is not None:
        for own, more in zip((shape, device, flags), (*elsewhere, columns[chosen]), strict=True):
            own.append(more)
    parts = [np.vstack(part) for part in (shape, device, flags)]
    said = ensemble.predict(*parts)
    return boost(
        np.hstack(parts), said, np.ones(len(said)), rounds=settings.student_rounds, depth=settings.student_depth,
        rate=0.2, sample_rows=1.0, sample_columns=0.8, seed=settings.seed,
    )  # fmt: skip


def _elsewhere(family: int, rows: Rows, chosen: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The same shapes on random devices of the catalog with a stated peak: (shape features, device features)."""
    known = [facts for facts in devices().values() if facts.flops_per_s and facts.memory_bytes_per_s and facts.sm_count]
    table = rows.table.take(chosen)
    pick = np.random.default_rng(seed).integers(len(known), size=len(chosen))
    pair = pick * len(table.dtype.names) + table.dtype.codes
    distinct, at = np.unique(pair, return_inverse=True)
    facts = np.array(
        [facts_row(known[code // len(table.dtype.names)], table.dtype.names[code % len(table.dtype.names)])
         for code in distinct]
    )  # fmt: skip
    at = at.astype(np.int32)
    return base_prices(family, table, facts, at)[0], device_features(facts, at)


def _kinds(table: OpTable, group: Labels) -> dict[str, dict[str, int]]:
    """Group -> op|dtype|direction -> rows."""
    dtype = context(table)["dtype"]
    parts = (group, table.op, dtype, table.direction)
    code = np.zeros(len(table), np.int64)
    for labels in parts:
        code = code * max(1, len(labels.names)) + labels.codes
    found: dict[str, dict[str, int]] = {name: {} for name in group.names}
    for row, count in zip(*np.unique(code, return_index=True, return_counts=True)[1:], strict=True):
        name, *kind = (labels.names[labels.codes[row]] for labels in parts)
        found[name]["|".join(kind)] = int(count)
    return found


def _ranges(shape: np.ndarray, group: Labels) -> tuple[np.ndarray, np.ndarray]:
    low = np.full((len(group.names), shape.shape[1]), np.inf, np.float32)
    high = np.full_like(low, -np.inf)
    np.minimum.at(low, group.codes, shape)
    np.maximum.at(high, group.codes, shape)
    return low, high


def interval_widths(
    family: int, rows: Rows, columns: np.ndarray, log_ratio: np.ndarray, stratum: np.ndarray, settings: Settings
) -> np.ndarray:
    """Half widths of the 80 % interval by situation and size, from rows that the fit did not see.

    Blind: device families are left out in turn; each device's 80 % quantile of |log error|; of those the 60 % quantile
    over devices, set by judgement, so that devices count and not rows.
    """
    widths = np.full((len(SITUATIONS), len(SIZES_S) + 1), 0.3)
    if not settings.folds:
        return widths
    errors = left_out_errors(rows, columns, log_ratio, stratum, settings)
    device = rows.table.device.codes
    size = np.searchsorted(SIZES_S, rows.base_s)
    known = _known_errors(rows, columns, log_ratio, stratum, settings)
    for index, (error, own) in enumerate(((known, False), (errors, True), (errors, True))):
        for bin_ in range(len(SIZES_S) + 1):
            for mask in (size == bin_, np.ones(len(size), bool)):
                mask = mask & np.isfinite(error)
                if mask.sum() >= 200 or (mask.sum() and not (size == bin_).any()):
                    widths[index, bin_] = _width(np.abs(error[mask]), device[mask], pooled=not own)
                    break
    # A device with rows of another source: between the two.
    widths[1] = np.sqrt(widths[0] * widths[2])
    return widths


def _width(error: np.ndarray, device: np.ndarray, *, pooled: bool) -> float:
    if pooled:
        return float(np.quantile(error, NOMINAL))
    each = [np.quantile(error[device == code], NOMINAL) for code in np.unique(device)]
    return float(np.quantile(each, 0.6))


def left_out_errors(
    rows: Rows, columns: np.ndarray, log_ratio: np.ndarray, stratum: np.ndarray, settings: Settings
) -> np.ndarray:
    """log(measured / blind price) of sampled rows, each from an ensemble that saw no device of its family; else NaN."""
    families = [facts.family or key for key, facts in ((name, devices()[name]) for name in rows.table.device.names)]
    distinct = sorted(set(families))
    fold_of = {name: index % settings.folds for index, name in enumerate(distinct)}
    fold = np.array([fold_of[name] for name in families])[rows.table.device.codes]
    chosen = sample_groups(stratum, most=400, seed=settings.seed + 1)
    errors = np.full(len(log_ratio), np.nan)
    for index in range(settings.folds):
        test, train = chosen[fold[chosen] == index], chosen[fold[chosen] != index]
        if not len(test) or len(np.unique(stratum[train])) < 2:
            continue
        number = np.unique(stratum[train], return_inverse=True)[1]
        ensemble = BlindEnsemble(rounds=min(100, settings.rounds), rate=0.12, seed=settings.seed)
        ensemble.fit(rows.shape[train], rows.device[train], columns[train], log_ratio[train], number)
        errors[test] = log_ratio[test] - ensemble.predict(rows.shape[test], rows.device[test], columns[test])
    return errors


def _known_errors(
    rows: Rows, columns: np.ndarray, log_ratio: np.ndarray, stratum: np.ndarray, settings: Settings
) -> np.ndarray:
    """Errors on whole shapes left out of known groups (a fifth of the shapes)."""
    shapes = whole_shapes(rows.table)
    held = np.random.default_rng(settings.seed).random(shapes.max() + 1)[shapes] < 0.2
    chosen = sample_groups(stratum, most=settings.known_rows // 5, seed=settings.seed + 2)
    train, test = chosen[~held[chosen]], chosen[held[chosen]]
    errors = np.full(len(log_ratio), np.nan)
    if len(train) < 100 or not len(test):
        return errors
    offsets = group_medians(log_ratio[train], stratum[train])
    offset = np.append(offsets, np.zeros(max(0, stratum.max() + 1 - len(offsets))))[stratum]
    inputs = np.hstack([rows.shape, rows.device, columns, stratum[:, None].astype(np.float32)])
    trees = boost(
        inputs[train], (log_ratio - offset)[train], np.ones(len(train)), rounds=settings.known_rounds,
        depth=settings.known_depth, rate=0.15, seed=settings.seed,
    )  # fmt: skip
    errors[test] = log_ratio[test] - offset[test] - trees.predict(inputs[test])
    return errors


def whole_shapes(table: OpTable) -> np.ndarray:
    """Numbers from 0 of distinct (op, direction, dims): rows of one shape are held out together."""
    parts: Sequence[np.ndarray] = (
        table.op.codes, table.direction.codes, table.b, table.m, table.n, table.k,
        *(table.extra(name, -1.0) for name in table.extras),
    )  # fmt: skip
    code = np.zeros(len(table), np.int64)
    for part in parts:
        values = np.unique(np.nan_to_num(part, nan=-1.0), return_inverse=True)[1]
        code = np.unique(code * (values.max() + 1) + values, return_inverse=True)[1]
    return code
