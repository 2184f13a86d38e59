"""Ops bound by traffic on an accelerator: vector ops, norms, softmax, gathers, optimizer steps, unnamed kernels.

time = floor + bytes / (share of bandwidth), at cache speed while the working set stays in L2. The share by generation
is what copy kernels reach on published parts: GDDR5 and HBM2 of Pascal 0.70, Turing 0.73, Volta 0.83, later 0.84.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ....engine.compiled import njit
from .facts import L2, RATE, SMS, VECTOR, YEAR

FEATURES = (
    "log_base", "log_bytes", "log_flops", "log_m", "log_n", "log_k", "bytes_over_l2", "rows_per_sm", "pow2_n",
    "bytes_per_element", "backward", "log_bytes_s", "log_input", "log_output", "log_weight", "log_kept",
)  # fmt: skip

_FLOOR_S = 3e-6
_CACHE_SPEED = 2.5
"""L2 over memory bandwidth where the working set fits; measured parts lie between 2 and 4."""


@njit()
def _log2(x):
    return np.log2(max(x, 1e-30))


@njit()
def _share(year):
    if year <= 2016:
        return 0.70
    if year == 2017:
        return 0.83
    if year == 2018:
        return 0.73
    return 0.84


@njit()
def fill_traffic(m, n, k, flops, moved, backward, parts, f, row):
    """Write the features of one op into `row`; its base seconds. Absent numbers are 0."""
    rate = f[RATE] * _share(f[YEAR])
    resident = 0.5 * f[L2]
    if moved <= resident:
        rate *= _CACHE_SPEED
    elif moved < 4.0 * resident:
        # Between, the speeds are mixed in proportion, so that prices have no jump.
        share = (moved / resident - 1.0) / 3.0
        rate = rate / (share + (1.0 - share) / _CACHE_SPEED)
    # Vector arithmetic at a quarter of its peak: divisions, exponentials and conversions take several issue slots.
    work = flops / (0.25 * f[VECTOR])
    seconds = _FLOOR_S + max(moved / rate, work)
    row[0] = np.log(seconds)
    row[1], row[2] = _log2(moved + 1.0), _log2(flops + 1.0)
    row[3], row[4], row[5] = _log2(m + 1.0), _log2(n + 1.0), _log2(k + 1.0)
    row[6] = _log2((moved + 1.0) / f[L2])
    row[7] = _log2((m + 1.0) / f[SMS])
    power = 0
    while power < 8 and n >= 1 and np.floor(n / 2.0 ** (power + 1)) * 2.0 ** (power + 1) == n:
        power += 1
    row[8] = power
    row[9] = _log2((moved + 1.0) / (m * n + 1.0))
    row[10] = 1.0 if backward else 0.0
    row[11] = np.log(moved / f[RATE] + 1e-7)
    for part in range(4):
        row[12 + part] = _log2(parts[part] + 1.0)
    return seconds


_R = types.Array(types.float64, 1, "C", readonly=True)
_I = types.Array(types.int32, 1, "C", readonly=True)
_M = types.Array(types.float64, 2, "C", readonly=True)


@njit(types.void(_R, _R, _R, _R, _R, _R, _M, _M, _I, types.float32[:, ::1], types.float64[::1]))
def traffic_rows(m, n, k, flops, moved, backward, parts, facts, at, features, base):
    """Features (rows, >= len(FEATURES)) and base seconds (rows,). `parts` (rows, 4): bytes of input, output, weights
    and kept activations where a source gives them, else 0."""
    for i in range(len(m)):
        base[i] = fill_traffic(
            m[i], n[i], k[i], flops[i], moved[i], backward[i] > 0, parts[i], facts[at[i]], features[i]
        )
