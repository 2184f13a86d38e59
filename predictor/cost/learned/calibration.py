"""Few-shot calibration: a handful of timings on a device correct all prices of their kind.

A Gaussian process on log(measured / price) over the shape features that say where a base goes wrong: one offset for
the device, a smooth part over shapes, noise. Ten timings are 10 x 10 matrices: plain numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

OVER = {
    "gemm": ("intensity_over_ridge", "log_blocks_per_sm", "log_m", "log_n", "log_k", "bytes_over_l2", "backward"),
    "attention": ("log_q", "log_heads", "log_d", "log_blocks_per_sm", "log_group", "backward"),
    "convolution": ("intensity_over_ridge", "log_blocks_per_sm", "log_window", "log_c", "log_k_out", "weight_gradient"),
    "recurrent": ("log_hidden", "log_batch", "log_steps", "gates"),
    "experts": ("log_tokens", "log_active", "log_k", "log_n"),
    "traffic": ("log_bytes", "log_n", "bytes_over_l2", "backward"),
}
"""Features of a family over which the correction is smooth."""


@dataclass(frozen=True)
class Kernel:
    """offset² + smooth²·RBF(length over standardised features), and the noise of one timing; log units."""

    offset: float
    smooth: float
    length: float
    noise: float


KERNELS = {
    "gemm": Kernel(0.15, 0.08, 1.5, 0.06),
    "attention": Kernel(0.3, 0.15, 2.0, 0.05),
}
DEFAULT_KERNEL = Kernel(0.25, 0.12, 1.5, 0.08)
_PASSES = 3
_OUTLIER = 2.5
"""A timing further from the fit than this many noises is believed less, in proportion."""


@dataclass
class GaussianCalibration:
    """scikit-learn shaped: settings in `__init__`, `fit` learns, `predict` gives a log correction and its spread."""

    kernel: Kernel = DEFAULT_KERNEL
    centre: np.ndarray | None = None
    scale: np.ndarray | None = None
    where_: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    weights_: np.ndarray = field(default_factory=lambda: np.empty(0))
    inverse_: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def fit(self, features: np.ndarray, log_ratio: np.ndarray) -> GaussianCalibration:
        """`features` (n, d), `log_ratio` (n,) = log(measured / price). `centre` and `scale` standardise the features;
        where they are None they are those of the timings, at least one octave wide."""
        if self.centre is None or self.scale is None:
            self.centre, self.scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1.0)
        self.where_ = (features - self.centre) / self.scale
        prior = self._covariance(self.where_, self.where_)
        noise = np.full(len(log_ratio), self.kernel.noise**2)
        for _ in range(_PASSES):
            self.inverse_ = np.linalg.inv(prior + np.diag(noise))
            self.weights_ = self.inverse_ @ log_ratio
            # Leave-one-out residual of each timing; an outlier's noise grows until it fits.
            left = np.abs(self.weights_ / np.diag(self.inverse_))
            allowed = _OUTLIER * np.sqrt(1.0 / np.diag(self.inverse_))
            noise = noise * np.maximum(1.0, left / allowed) ** 2
        return self

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(log correction, log spread) of rows (n, d)."""
        assert self.centre is not None and self.scale is not None, "fit first"
        here = (features - self.centre) / self.scale
        across = self._covariance(here, self.where_)
        own = self.kernel.offset**2 + self.kernel.smooth**2
        spread = np.sqrt(np.maximum(own - np.einsum("ij,jk,ik->i", across, self.inverse_, across), 0.0))
        return across @ self.weights_, np.hypot(spread, self.kernel.noise)

    def _covariance(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        distance = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
        smooth = np.exp(-0.5 * distance / self.kernel.length**2)
        return self.kernel.offset**2 + self.kernel.smooth**2 * smooth


def spread_out(features: np.ndarray, count: int, *, seed: int = 0, passes: int = 20) -> np.ndarray:
    """Indices of `count` rows nearest to the centres of k-means over standardised features: shapes worth timing.

    Fewer come back when there are fewer distinct rows.
    """
    scaled = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-6)
    distinct = np.unique(scaled, axis=0, return_index=True)[1]
    scaled_rows = scaled[distinct]
    if len(distinct) <= count:
        return np.sort(distinct)
    random = np.random.default_rng(seed)
    centres = scaled_rows[random.choice(len(scaled_rows), count, replace=False)]
    for _ in range(passes):
        nearest = _distances(scaled_rows, centres).argmin(axis=1)
        for index in range(count):
            if (nearest == index).any():
                centres[index] = scaled_rows[nearest == index].mean(axis=0)
    chosen: list[int] = []
    for row in _distances(scaled_rows, centres).T:
        chosen.append(int(next(index for index in row.argsort() if index not in chosen)))
    return np.sort(distinct[chosen])


def _distances(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return (rows**2).sum(axis=1)[:, None] - 2.0 * rows @ centres.T + (centres**2).sum(axis=1)[None, :]


def columns(names: Sequence[str], family: str) -> list[int]:
    """Positions of a family's calibration features among `names`."""
    return [names.index(name) for name in OVER[family]]
