"""Side: what a comparison needs of a prediction or of a run, read from either."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..datasets.errors import ForetraceError, InputError

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.profile import Profile
    from ..predictor import Prediction

OpKey = tuple[str, str, str, str]
"""(op name, phase, dims, dtype)"""

# Half an interquartile range is 0.674 σ and the median of n values has a standard error of 1.253 σ / √n.
_MEDIAN_ERROR = 1.253 / 0.674


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison."""

    label: str
    kind: str
    """`prediction` or `profile`."""
    step_time_s: float
    interval_s: tuple[float, float] | None = None
    """80 % interval of a prediction; None for a run."""
    spread: float | None = None
    """Half the interquartile range of a run's steps over their median; None for a prediction and for a single step."""
    steps: int | None = None
    """Steps that a run's median is of; None for a prediction."""
    peak_memory_bytes: int | None = None
    """Of the fullest rank; None where the run did not record it."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """Of a prediction: seconds on the critical path. Of a run: seconds of the mean rank in its recorded steps."""
    ops_s: dict[OpKey, tuple[float, float]] = field(default_factory=dict)
    """(seconds per step, their spread in seconds) of one rank of each pipeline stage, all calls together."""
    problems: tuple[str, ...] = ()

    @property
    def median_error(self) -> float:
        """Standard error of the median step, relative; 0 where it is not known."""
        return _MEDIAN_ERROR * self.spread / math.sqrt(self.steps) if self.spread and self.steps else 0.0


def read_side(path: Path) -> Side:
    """Read a run folder or a prediction. Raises `InputError` naming what is wrong with which file."""
    if path.is_dir():
        from ..datasets.profile import Profile

        return _of_profile(path, Profile.load(path))
    from ..datasets.store.files import read_json
    from ..predictor import Prediction

    document = read_json(path, what="run folder or prediction")
    if document.get("kind") != "prediction":
        raise InputError(
            f"{path}: is neither a run folder nor a prediction: kind is {document.get('kind')!r}; name a folder that "
            "profile wrote, or a file with the output of 'foretrace predict --json'"
        )
    try:
        return _of_prediction(path, Prediction.from_dict(document))
    except (AttributeError, KeyError, TypeError, ValueError, ForetraceError) as error:
        found = f"lacks {error}" if isinstance(error, KeyError) else f"holds what no prediction does ({error})"
        raise InputError(f"{path}: the prediction {found}; write it again with: foretrace predict --json") from error


def _of_prediction(path: Path, prediction: Prediction) -> Side:
    ops: dict[OpKey, tuple[float, float]] = {}
    for cost in prediction.ops:
        key = (str(cost.name), str(cost.phase), str(cost.dims), str(cost.dtype))
        seconds = _seconds(cost.total_s, "total_s")
        _add(ops, key, seconds, seconds * _seconds(cost.spread, "spread"))
    peak = prediction.peak_memory_bytes
    return Side(
        label=f"{path.name}: {prediction.workload} {prediction.plan_text}",
        kind="prediction",
        step_time_s=_step(prediction.step_time_s, "step_time_s"),
        interval_s=(_step(prediction.low_s, "interval_s.low"), _step(prediction.high_s, "interval_s.high")),
        peak_memory_bytes=int(peak) if peak else None,
        parts_s={str(name): _seconds(value, name) for name, value in prediction.parts_s.items()},
        ops_s=ops,
    )


def _of_profile(path: Path, profile: Profile) -> Side:
    if profile.step_time_s is None:
        raise InputError(f"{path}: has no step to compare: {profile.step_time_reason}")
    _step(profile.step_time_s, f"{path}: step time")
    workload = profile.manifest.get("workload")
    name = workload.get("name") or workload.get("reference") if isinstance(workload, dict) else workload
    problems = list(profile.problems)
    if profile.status != "complete":
        problems.append(f"the run is {profile.status}; its finished steps are compared")
    return Side(
        label=f"{path.name}: {name or 'run'} {profile.plan or ''}".rstrip(),
        kind="profile",
        step_time_s=profile.step_time_s,
        spread=profile.step_spread,
        steps=len(profile.step_times),
        peak_memory_bytes=profile.peak_memory_bytes,
        parts_s=_parts(profile),
        ops_s=_ops(profile),
        problems=tuple(f"{path}: {problem}" for problem in problems),
    )


def _ops(profile: Profile) -> dict[OpKey, tuple[float, float]]:
    rows = _timed(profile)
    stages = profile.plan.pp if profile.plan is not None else 1
    ranks_per_stage = max(1.0, rows["rank"].nunique() / stages)
    ops: dict[OpKey, tuple[float, float]] = {}
    for row in rows.itertuples(index=False):
        dims = "×".join(str(int(size)) for size in (row.b, row.m, row.n, row.k) if size)
        seconds = row.seconds / ranks_per_stage
        spread_s = seconds * row.spread if row.spread == row.spread else 0.0
        _add(ops, (str(row.name), str(row.phase), dims, str(row.dtype)), seconds, spread_s)
    return ops


def _parts(profile: Profile) -> dict[str, float]:
    """Op time by phase, host time, and the time that the stepping thread waits for other ranks."""
    rows = _timed(profile)
    ranks = max(1, rows["rank"].nunique())
    parts = {str(phase): float(seconds) / ranks for phase, seconds in rows.groupby("phase").seconds.sum().items()}
    # The host table has no column of ranks: one row for each rank, kind and phase.
    for kind, part in (("step", "host"), ("wait", "communication")):
        times = profile.host[profile.host.kind == kind].time_s.dropna()
        if len(times):
            parts[part] = float(times.sum()) / ranks
    return parts


def _timed(profile: Profile) -> pd.DataFrame:
    """Op rows that have a time, with `seconds` per step. Views move no data; their time is host time."""
    rows = profile.ops[profile.ops.time_s.notna() & (profile.ops.op != "view")].copy()
    rows["seconds"] = rows.time_s * rows["count"].fillna(1).astype(float)
    rows["spread"] = rows.spread.astype(float)
    rows["phase"] = rows.phase.fillna("other")
    return rows


def _add(ops: dict[OpKey, tuple[float, float]], key: OpKey, seconds: float, spread_s: float) -> None:
    known_s, known_spread_s = ops.get(key, (0.0, 0.0))
    ops[key] = (known_s + seconds, known_spread_s + spread_s)


def _seconds(value: float, name: str) -> float:
    """A finite number that is not negative; `TypeError` or `ValueError` else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}")
    return float(value)


def _step(value: float, name: str) -> float:
    if _seconds(value, name) == 0:
        raise ValueError(f"{name} is 0")
    return float(value)
