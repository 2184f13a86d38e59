"""Calibration: what one measured run of the same model says about the prices of its ops.

The ratio measured / predicted of each op of the run is carried to like ops of another batch, sequence length or plan:
same group and phase first, weighted by closeness, shrunk to 1 where the run has nothing like it. What the step as a
whole still differs by is one factor on compute and host time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from ...datasets.ops import Op
from .features import coordinates, group_of, kin_of

_REACH = 2.0  # log2 units: an op four times larger still counts a good third
_PRIOR_WEIGHT = 0.15
_KIN_WEIGHT = 0.3
_LARGEST_LOG_RATIO = 1.2
_SPREAD_OF_RUN = 0.05


@dataclass
class Calibration:
    """Log ratios measured / predicted by group and phase, and the factor of the whole step."""

    step_factor: float = 1.0
    """Believed over predicted step time of the run itself, after its op ratios; multiplies compute and host time."""
    reference: str = ""
    """Which run it came from."""
    _groups: dict[tuple[str, str], list[tuple[np.ndarray, float, float]]] = field(default_factory=dict)
    _kin: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def from_ops(
        cls, rows: Iterable[tuple[Op, str, float, int]], predict_s: Callable[[Op, str], float], reference: str = ""
    ) -> Calibration:
        """`rows` holds (op, phase, measured seconds per call, calls per step); `predict_s` is the price without it."""
        groups: dict[tuple[str, str], list[tuple[np.ndarray, float, float]]] = defaultdict(list)
        kin: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for op, phase, measured_s, calls in rows:
            expected_s = predict_s(op, phase)
            if measured_s <= 0 or expected_s <= 0 or op.family == "view":
                continue
            ratio = float(np.clip(np.log(measured_s / expected_s), -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO))
            weight = measured_s * max(1, calls)
            groups[group_of(op), phase].append((coordinates(op), ratio, weight))
            kin[kin_of(op)].append((ratio, weight))
        means = {
            name: (float(np.average([r for r, _ in pairs], weights=[w for _, w in pairs])), sum(w for _, w in pairs))
            for name, pairs in kin.items()
        }
        return cls(reference=reference, _groups=dict(groups), _kin=means)

    def op_factor(self, op: Op, phase: str, spread: float) -> tuple[float, float]:
        """(factor on the price, log-spread that remains) for one op."""
        prior, prior_weight = self._kin.get(kin_of(op), (0.0, 0.0))[0], _PRIOR_WEIGHT
        rows = self._groups.get((group_of(op), phase))
        if not rows:
            return float(np.exp(_KIN_WEIGHT * prior)), spread
        here = coordinates(op)
        distance = np.array([np.sqrt(((where - here) ** 2).sum()) for where, _, _ in rows])
        ratio = np.array([item[1] for item in rows])
        share = np.array([item[2] for item in rows])
        weight = np.exp(-0.5 * (distance / _REACH) ** 2) * np.sqrt(share / share.max())
        # The nearest shapes decide; many far ones must not outvote them.
        weight *= 1.0 / (0.1 + (distance - distance.min()))
        weight /= max(1.0, weight.max())
        log_factor = float((weight @ ratio + prior_weight * _KIN_WEIGHT * prior) / (weight.sum() + prior_weight))
        known = float(weight.max())
        return float(np.exp(log_factor)), float(np.hypot(_SPREAD_OF_RUN, spread * (1.0 - 0.7 * known)))
