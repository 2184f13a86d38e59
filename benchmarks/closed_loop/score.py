"""Score: predictions beside measurements, cold and calibrated; errors, coverage and ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from foretrace.datasets.machine import Machine
from foretrace.datasets.profile import Profile
from foretrace.datasets.workloads import load
from foretrace.predictor import Cluster, Prediction, predict

from .blocks import QUIET_BLOCKS, TOLERANCE, off_by
from .cases import Group


@dataclass(frozen=True)
class Measured:
    """One case on the clock."""

    step_s: float
    noise: float
    """Half the interquartile range of the blocks' steps over their median."""
    noisy: bool
    """No block had both probes within the tolerance of the best tenth of all probes."""
    peak_bytes: int


@dataclass(frozen=True)
class Row:
    """One case: measured, predicted cold and calibrated."""

    group: str
    plan: str
    measured: Measured
    cold: Prediction
    calibrated: Prediction

    def error(self, column: str) -> float:
        """Signed relative error of `cold` or `calibrated`."""
        return getattr(self, column).step_time_s / self.measured.step_s - 1.0

    def inside(self, column: str) -> bool:
        """Whether the measured step lies in the interval."""
        prediction = getattr(self, column)
        return prediction.low_s <= self.measured.step_s <= prediction.high_s

    @property
    def memory_error(self) -> float:
        """Signed relative error of the fullest rank's peak tensor bytes."""
        return self.cold.peak_memory_bytes / self.measured.peak_bytes - 1.0


def best_tenth(results: dict[str, Any]) -> list[float]:
    """Median of the best tenth of all probes, GEMM and copy."""
    probes = np.array([p for r in results.values() for b in r["ranks"][0]["blocks"] for p in (b["before"], b["after"])])
    return best_of(probes)


def best_of(probes: np.ndarray) -> list[float]:
    """Median of the best tenth of `probes` of shape (probes, 2), each column for itself."""
    few = max(1, len(probes) // 10)
    return [float(np.median(np.sort(column)[:few])) for column in probes.T]


def measured(result: dict[str, Any], best: Sequence[float]) -> Measured:
    """The median step over the quiet blocks; over the quietest few, and marked, when none was quiet."""
    ranks = result["ranks"]
    steps, offs = [], []
    for blocks in zip(*(rank["blocks"] for rank in ranks), strict=True):
        # Ranks of a step end together; the slowest rank's time is the step.
        steps.append(np.max([block["seconds"] for block in blocks], axis=0))
        offs.append(off_by(blocks[0]["before"], blocks[0]["after"], best))
    quiet = [block for block, off in zip(steps, offs, strict=True) if off <= TOLERANCE]
    chosen = quiet or [steps[index] for index in np.argsort(offs)[:QUIET_BLOCKS]]
    seconds = np.concatenate(chosen)
    low, high = np.percentile(seconds, [25, 75])
    return Measured(
        step_s=float(np.median(seconds)),
        noise=float((high - low) / 2 / np.median(seconds)),
        noisy=not quiet,
        peak_bytes=max(rank["peak"]["total"] for rank in ranks),
    )


def score(groups: Sequence[Group], machine: Machine, work: Path, results: dict[str, Any]) -> list[Row]:
    """Predict every measured case twice; a case's own run is never read by its predictions."""
    cluster = Cluster(machine)
    best = best_tenth(results)
    rows = []
    for group in groups:
        workload = load(group.workload, **group.settings)
        profile = Profile.load(work / f"calibration-{group.name}")
        for case in group.cases():
            if case.name not in results:
                continue
            cold = predict(workload, case.plan, cluster)
            calibrated = predict(workload, case.plan, cluster, from_profile=profile)
            rows.append(Row(group.name, str(case.plan), measured(results[case.name], best), cold, calibrated))
    return rows


def ranking(rows: Sequence[Row], column: str) -> dict[str, float | int]:
    """Pairs of plans of one group and one batch whose times differ by more than twice the noise: how many are ordered
    right, and the mean regret of taking the plan that is predicted fastest."""
    right = pairs = 0
    regrets = []
    for name in dict.fromkeys(row.group for row in rows):
        members = [row for row in rows if row.group == name]
        for a, b in combinations(members, 2):
            gap = abs(a.measured.step_s - b.measured.step_s) / min(a.measured.step_s, b.measured.step_s)
            if gap > 2 * max(a.measured.noise, b.measured.noise):
                pairs += 1
                told = getattr(a, column).step_time_s < getattr(b, column).step_time_s
                right += told == (a.measured.step_s < b.measured.step_s)
        # Throughput is what a plan is chosen for: members differ in batch.
        chosen = max(members, key=lambda row: getattr(row, column).samples_per_s)
        rate = [row.cold.samples_per_step / row.measured.step_s for row in members]
        regrets.append(max(rate) / (chosen.cold.samples_per_step / chosen.measured.step_s) - 1.0)
    return {"pairs": pairs, "right": right, "mean_regret": float(np.mean(regrets)) if regrets else 0.0}


def summary(rows: Sequence[Row], column: str) -> dict[str, float]:
    """Median and 90th percentile of absolute error, largest, bias (median signed), coverage."""
    errors = np.array([row.error(column) for row in rows])
    return {
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.percentile(np.abs(errors), 90)),
        "largest": float(np.abs(errors).max()),
        "bias": float(median(errors)),
        "mean": float(np.mean(np.abs(errors))),
        "coverage": float(np.mean([row.inside(column) for row in rows])),
    }
