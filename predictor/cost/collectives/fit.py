"""Fitting of what closed forms cannot know: `fit_constants` per kind of wire, `fit_collectives` the whole model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ....datasets.errors import MissingExtraError
from ....datasets.version import __version__
from .closed_form import Constants, default_of, group_of, seconds
from .model import SCHEMA_VERSION, Model
from .similarity import Level
from .table import Curve, curves_of

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (
    Level(why="every kind on one device with one backend", amplitude=0.15, length=10.0,
          same=("family", "device", "source"), drift={"ranks": 3.0, "nodes": 1.0}),
    Level(why="a kind on wires of one sort, whatever the backend", amplitude=0.3, length=10.0,
          same=("topology", "kind"), drift={"ranks": 3.0, "nodes": 2.0, "rate": 4.0}),
    Level(why="a kind on wires of one sort with one backend", amplitude=0.2, length=5.0,
          same=("topology", "family", "kind"), drift={"ranks": 2.0, "nodes": 2.0, "rate": 2.0, "options": 4.0}),
    Level(why="the same, measured in one way", amplitude=0.35, length=5.0,
          same=("topology", "family", "kind", "source"),
          drift={"ranks": 2.0, "nodes": 2.0, "rate": 2.0, "options": 4.0}),
    Level(why="a kind on one device", amplitude=0.15, length=4.0,
          same=("device", "family", "kind"), drift={"ranks": 2.0, "nodes": 2.0, "options": 4.0}),
    Level(why="a kind on one device, measured in one way", amplitude=0.15, length=4.0,
          same=("device", "family", "kind", "source", "wires"), drift={"ranks": 2.0, "nodes": 2.0, "options": 4.0}),
    Level(why="protocol steps that devices on such wires share", amplitude=0.2, length=1.0,
          same=("topology", "family", "kind", "source"),
          drift={"ranks": 1.0, "nodes": 1.0, "rate": 1.5, "options": 2.0}),
    Level(why="protocol steps of one device", amplitude=0.1, length=1.0,
          same=("device", "family", "kind", "source", "wires"), drift={"ranks": 1.0, "nodes": 1.0, "options": 2.0}),
    Level(why="elements of one width: another reduction kernel", amplitude=0.08, length=1.0,
          same=("topology", "family", "kind", "width"),
          drift={"ranks": 0.7, "nodes": 1.0, "rate": 1.0, "options": 2.0}),
    Level(why="one version on one device", amplitude=0.05, length=2.0,
          same=("device", "family", "kind", "source", "wires", "version", "width", "label"),
          drift={"ranks": 0.5, "nodes": 0.5, "options": 0.5}),
)  # fmt: skip
"""Why measured curves differ from closed forms alike. Amplitudes and lengths were chosen on the validation devices."""

VALIDATION = ("A100-SXM4-80GB", "GB300", "H200-SXM-141GB", "RTX-PRO-6000-SE")
"""Devices that choices were made on."""

NOISE = 0.04
CLOCK_S = 0.3e-6
WIDTHS = {"measured": 0.8, "learned": 0.75, "analytic": 0.7}
"""Half width of the 80 % interval in deviations of the process: chosen on the validation devices, whose coverage with
1.28 (a normal distribution) was 0.94 to 0.96."""
FLOORS = {"measured": 0.02, "learned": 0.05, "analytic": 0.08}


def fit_constants(
    curves: list[Curve], place: np.ndarray, size_bytes: np.ndarray, time_s: np.ndarray
) -> dict[str, Constants]:
    """Constants of every (family, topology, kind) that has rows; devices weigh alike."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, curve in enumerate(curves):
        groups[group_of(curve)].append(index)
    return {key: _fit_group(curves, members, place, size_bytes, time_s) for key, members in sorted(groups.items())}


def _fit_group(
    curves: list[Curve], members: list[int], place: np.ndarray, size_bytes: np.ndarray, time_s: np.ndarray
) -> Constants:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:  # pragma: no cover
        raise MissingExtraError("scipy", extra="fit", purpose="fitting prices of collectives") from error

    rows = [np.flatnonzero(place == member) for member in members]
    rows = [where[:: max(len(where) // 40, 1)] for where in rows]
    of_device: dict[str, int] = defaultdict(int)
    for member, where in zip(members, rows, strict=True):
        of_device[curves[member].device] += len(where)
    default = default_of(curves[members[0]].links.topology)
    start = np.log([default.start_s, default.step_s, default.efficiency, default.half_bytes, default.slowness])

    def residuals(theta: np.ndarray) -> np.ndarray:
        constants = _constants(theta)
        parts = []
        for member, where in zip(members, rows, strict=True):
            error = np.log(seconds(curves[member], size_bytes[where], constants) / time_s[where])
            parts.append(error * np.sqrt(100.0 / of_device[curves[member].device]))
        # A few pseudo-rows hold what the data do not tell at the default.
        parts.append((theta - start) * np.array([0.3, 0.5, 0.5, 0.3, 2.0]))
        return np.concatenate(parts)

    found = least_squares(residuals, start, loss="soft_l1", f_scale=0.2, max_nfev=60)
    return _constants(found.x)


def _constants(theta: np.ndarray) -> Constants:
    start_s, step_s, efficiency, half_bytes, slowness = np.exp(np.clip(theta, -30, 30))
    return Constants(
        start_s=float(start_s), step_s=float(step_s), efficiency=float(efficiency), half_bytes=float(half_bytes),
        slowness=float(min(slowness, 1.5)),
    )  # fmt: skip


def fit_collectives(
    rows: pd.DataFrame,
    *,
    progress: Callable[[str], None] = lambda text: None,
    provenance: dict[str, str | int | float] | None = None,
) -> Model:
    """The model of `rows`: columns of a collectives table with `time_s` in seconds."""
    curves, place = curves_of(rows)
    progress(f"closed forms of {len(curves)} curves")
    constants = fit_constants(curves, place, rows["bytes"].to_numpy(dtype=float), rows["time_s"].to_numpy(dtype=float))
    return Model(
        schema_version=SCHEMA_VERSION, kind="collectives", foretrace=__version__, constants=constants, levels=LEVELS,
        noise=NOISE, clock_s=CLOCK_S, widths=WIDTHS, floors=FLOORS, provenance=provenance or {},
    )  # fmt: skip


def fit_shipped(progress: Callable[[str], None] = lambda text: None) -> Model:
    """The model of the shipped rows that may be fitted to; `save` it to `model.PATH`."""
    from ....datasets import shipped

    rows = shipped.collectives()
    found: dict[str, str | int | float] = {
        "rows": len(rows), "devices": ", ".join(sorted(rows["device"].astype(str).unique())),
        "data": str(shipped.provenance()["content_hash"]),
        "method": "constants: least squares, soft L1, devices weigh alike, part fit only; levels: chosen by hand on "
        "A100-SXM4-80GB, H200-SXM-141GB, GB300 and RTX-PRO-6000-SE",
    }  # fmt: skip
    return fit_collectives(rows, progress=progress, provenance=found)
