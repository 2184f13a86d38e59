"""Devices left out: blind prices, and prices after n timings of the device's own.

"device": the device is left out, its siblings stay. "family": devices of its die are left out too. Errors are averaged
within a group (device, source, framework), then within the device, then over devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from foretrace.datasets import catalog
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.calibration import (
    DEFAULT_KERNEL,
    KERNELS,
    GaussianCalibration,
    columns,
    spread_out,
)
from foretrace.predictor.cost.learned.ensemble import BlindEnsemble, sample_groups
from foretrace.predictor.cost.learned.families import NAMES
from foretrace.predictor.cost.learned.fit import shape_names, strata
from foretrace.predictor.cost.learned.rows import Rows, flag_names, groups_of

TRAIN_ROWS, TEST_ROWS = 700, 2000
"""Most rows of a group that are fitted to, and that are scored."""
DRAWS = 3
"""Choices of the n timed shapes that few-shot errors are means over."""


@dataclass(frozen=True, eq=False)
class Left:
    """Rows of left-out devices with what was said of them."""

    device: np.ndarray
    group: np.ndarray
    log_ratio: np.ndarray
    """log(measured / base)."""
    said: dict[str, np.ndarray]
    """Method -> predicted log ratio; few-shot methods hold one row of errors a draw, NaN where a row was timed."""


def prepared(family: str, table: OpTable, most: int, seed: int = 0) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray]:
    """(rows, flags, log ratio, stratum) of at most `most` rows a group of `table`."""
    group = groups_of(table)
    table = table.take(sample_groups(group.codes, most=most, seed=seed))
    rows = Rows.of(NAMES.index(family), table)
    assert table.time_s is not None
    return rows, rows.flags(flag_names(table)), np.log(table.time_s / rows.base_s), strata(table, groups_of(table))


def families() -> dict[str, str]:
    """Device key -> what is left out with it."""
    return {key: facts.family or key for key, facts in catalog.devices().items()}


def leave_out(
    family: str, train: OpTable, test: OpTable, devices: list[str], *, what: str = "device",
    shots: tuple[int, ...] = (), seed: int = 0, rounds: int = 200, rate: float = 0.08,
) -> Left:  # fmt: skip
    """Price the rows of `test` on each of `devices` by an ensemble that saw none of it in `train`."""
    rows, flags, ratio, stratum = prepared(family, train, TRAIN_ROWS, seed)
    own = flag_names(rows.table)
    tested, _, target, _ = prepared(family, test, TEST_ROWS, seed)
    tested_flags = tested.flags(own)
    device, kin = tested.table.device.texts(), families()
    seen = rows.table.device.texts()
    group = groups_of(tested.table)
    said = {"base": np.zeros(len(tested)), "blind": np.full(len(tested), np.nan)}
    for shot in shots:
        said[str(shot)] = np.full((DRAWS, len(tested)), np.nan)
    at = columns(shape_names(NAMES.index(family)), family)
    for name in devices:
        mask = np.flatnonzero(device == name)
        left = np.array([kin[other] == kin[name] if what == "family" else other == name for other in seen])
        keep = np.flatnonzero(~left)
        number = np.unique(stratum[keep], return_inverse=True)[1]
        model = BlindEnsemble(rounds=rounds, rate=rate, seed=seed)
        model.fit(rows.shape[keep], rows.device[keep], flags[keep], ratio[keep], number)
        said["blind"][mask] = model.predict(tested.shape[mask], tested.device[mask], tested_flags[mask])
        for code in np.unique(group.codes[mask]):
            own_rows = mask[group.codes[mask] == code]
            features = tested.shape[own_rows][:, at].astype(np.float64)
            error = (target - said["blind"])[own_rows]
            for shot in shots:
                for draw in range(DRAWS):
                    said[str(shot)][draw, own_rows] = _after(features, error, shot, family, draw)
    return Left(device, group.codes, target, said)


def _after(features: np.ndarray, error: np.ndarray, shot: int, family: str, draw: int) -> np.ndarray:
    """What is left of log errors once `shot` of the rows were timed; NaN for those."""
    timed = spread_out(features, shot, seed=draw)
    fitted = GaussianCalibration(KERNELS.get(family, DEFAULT_KERNEL))
    fitted.centre, fitted.scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-3)
    fitted.fit(features[timed], error[timed])
    rest = error - fitted.predict(features)[0]
    rest[timed] = np.nan
    return rest


def errors_of(left: Left, method: str) -> np.ndarray:
    """|predicted / measured - 1| in per cent, (draws, rows)."""
    said = left.said[method]
    rest = said if said.ndim == 2 else (left.log_ratio - said)[None]
    return 100.0 * np.abs(np.exp(-rest) - 1.0)


def by_device(left: Left, method: str) -> dict[str, tuple[float, float]]:
    """Device -> (mean, median) per cent, averaged over groups and draws."""
    errors, found = errors_of(left, method), {}
    for name in sorted(set(left.device)):
        pairs = []
        for code in np.unique(left.group[left.device == name]):
            part = errors[:, left.group == code]
            if np.isfinite(part).any():
                pairs += [(np.nanmean(draw), np.nanmedian(draw)) for draw in part if np.isfinite(draw).any()]
        if pairs:
            found[name] = (float(np.mean([p[0] for p in pairs])), float(np.mean([p[1] for p in pairs])))
    return found
