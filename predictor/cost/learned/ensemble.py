"""The blind ensemble: log(measured / base) for a device of which no row was seen.

Mean in log space of the base itself (correction 0), trees on shape features and flags, the same with device features,
and trees on residuals centred by group. Each tries what the others cannot: the base needs no data, device features
carry what siblings share, centred residuals carry shapes and leave levels to the median group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from .trees import Trees, boost

ROWS_PER_GROUP = 3000


@dataclass
class BlindEnsemble:
    """scikit-learn shaped. Members are named in `members`; `base_share` is the weight of the uncorrected base."""

    base_share: float = 0.25
    rounds: int = 300
    rate: float = 0.06
    seed: int = 0
    plain_: Trees | None = None
    device_: Trees | None = None
    centred_: Trees | None = None
    level_: float = 0.0
    """Median of the groups' median residuals, which the centred member adds back."""
    members_: dict[str, float] = field(default_factory=dict)

    def fit(
        self, shape: np.ndarray, device: np.ndarray, flags: np.ndarray, log_ratio: np.ndarray, group: np.ndarray
    ) -> BlindEnsemble:
        """`log_ratio` (rows,) = log(measured / base), `group` (rows,) small integers. Groups weigh the same."""
        weight = group_weights(group)
        level = group_medians(log_ratio, group)
        plain = np.hstack([shape, flags])
        settings = {"rounds": self.rounds, "rate": self.rate, "seed": self.seed}
        self.plain_ = boost(plain, log_ratio, weight, **settings)  # type: ignore[arg-type]
        self.device_ = boost(np.hstack([plain, device]), log_ratio, weight, **settings)  # type: ignore[arg-type]
        self.centred_ = boost(plain, log_ratio - level[group], weight, **settings)  # type: ignore[arg-type]
        self.level_ = float(np.median(level[np.unique(group)]))
        return self

    def predict(self, shape: np.ndarray, device: np.ndarray, flags: np.ndarray) -> np.ndarray:
        """Log correction of the base, float64 (rows,)."""
        assert self.plain_ and self.device_ and self.centred_, "fit first"
        plain = np.hstack([shape, flags])
        members = [
            self.plain_.predict(plain), self.device_.predict(np.hstack([plain, device])),
            self.centred_.predict(plain) + self.level_,
        ]  # fmt: skip
        return (1.0 - self.base_share) * np.mean(members, axis=0)


def group_weights(group: np.ndarray) -> np.ndarray:
    """Weights with mean 1 under which every group counts the same."""
    counts = np.bincount(group)
    weight = 1.0 / counts[group]
    return weight / weight.mean()


def group_medians(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Median of `values` by group, 0 for a number that no row has."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(group.max() + 2))
    ordered = values[order]
    return np.array([
        np.median(ordered[begin:end]) if end > begin else 0.0
        for begin, end in pairwise(bounds)
    ])  # fmt: skip


def sample_groups(group: np.ndarray, *, most: int = ROWS_PER_GROUP, seed: int = 0) -> np.ndarray:
    """Sorted indices with at most `most` rows of each group: dense sweeps must not drown the rest."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(group))
    by_group = order[np.argsort(group[order], kind="stable")]
    counts = np.bincount(group)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.arange(len(group)) - first[group[by_group]]
    return np.sort(by_group[place < most])
