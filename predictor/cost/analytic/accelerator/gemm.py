"""GEMM on an accelerator: the fastest of a set of tiles and split-k factors.

b batches of (m x k)(k x n). A tile of tm x tn outputs is one thread block; blocks run in waves over the
multiprocessors; the last wave is padded. Splitting k over s blocks fills a small grid and pays for partial sums in
memory. Constants were set by hand before any fit (GEMM quantisation after NVIDIA's "Matrix Multiplication Background";
tiles are those of cuBLAS and CUTLASS defaults).
"""

from __future__ import annotations

import numpy as np
from numba import types

from ....engine.compiled import njit
from .facts import ELEMENT, L2, OUTPUT, PEAK, RATE, SMS, TENSOR

FEATURES = (
    "log_base", "log_flops", "intensity_over_ridge", "compute_over_memory", "log_waves", "tail", "log_tile",
    "log_split", "log_blocks_per_sm", "log_flops_per_sm", "log_m", "log_n", "log_k", "log_b", "log_m_over_n", "pow2_m",
    "pow2_n", "pow2_k", "fill_m", "fill_n", "a_over_l2", "b_over_l2", "c_over_l2", "bytes_over_l2", "backward",
)  # fmt: skip

_TILES = np.array(
    [[256, 128], [128, 256], [128, 128], [128, 64], [64, 256], [64, 128], [64, 64], [32, 64]], dtype=np.float64
)
_LAST_TENSOR = 7
_LAUNCH_S, _PIPELINE_S = 2.5e-6, 1e-6
_LAUNCH_FP32_S = 4e-6
_MEMORY_EFFICIENCY, _MEMORY_EFFICIENCY_FP32 = 0.9, 0.85
_RESIDENT = 0.4
"""Share of L2 below which an operand stays there between waves."""


@njit()
def _log2(x):
    return np.log2(max(x, 1e-30))


@njit()
def _pow2(x):
    """log2 of the largest power of two that divides x, at most 8."""
    value = int(x)
    count = 0
    while count < 8 and value > 0 and value % 2 == 0:
        value //= 2
        count += 1
    return float(count)


@njit()
def one_gemm(b, m, n, k, f, kind):
    """(seconds, tile m, tile n, split, compute s, memory s, waves, tail, blocks); `f` is a row of facts.

    `kind` 1 allows large split-k factors, as weight gradients of convolutions need them.
    """
    sms = f[SMS]
    peak, rate, l2 = f[PEAK], f[RATE], f[L2]
    tensor = f[TENSOR] > 0 and f[ELEMENT] < 4
    half = 64.0 if tensor else 32.0
    launch = _LAUNCH_S if tensor else _LAUNCH_FP32_S
    efficiency = _MEMORY_EFFICIENCY if tensor else _MEMORY_EFFICIENCY_FP32
    a_bytes, b_bytes, c_bytes = b * m * k * f[ELEMENT], b * k * n * f[ELEMENT], b * m * n * f[OUTPUT]
    best = np.inf
    out = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    splits = 9 if kind == 1 else 4
    for tile in range(len(_TILES)):
        tm, tn = _TILES[tile, 0], _TILES[tile, 1]
        rows, columns = np.ceil(m / tm), np.ceil(n / tn)
        e = 1.0 / (1.0 + 0.15 * (half / tm + half / tn) / 2.0)
        per_block = 2.0 * tm * tn / (peak / sms * e)
        for power in range(splits):
            s = float(1 << power)
            blocks = b * rows * columns * s
            if power > 0 and (k / s < 256 or b * rows * columns * s >= 4 * sms * 2):
                break
            waves = np.ceil(blocks / sms)
            compute = waves * per_block * (32.0 * np.ceil(k / s / 32.0) + 64.0) + _PIPELINE_S
            # One wave covers a near-square block of tiles of one batch.
            wave = min(sms, rows * columns)
            wide = min(columns, max(1.0, np.floor(np.sqrt(wave * tm / tn) + 0.5)))
            high = min(rows, max(1.0, np.floor(wave / wide)))
            again_a = np.ceil(columns / wide) if a_bytes / b > _RESIDENT * l2 else 1.0
            again_b = np.ceil(rows / high) if b_bytes / b > _RESIDENT * l2 else 1.0
            partial = 4.0 * s * b * m * n if power > 0 else 0.0
            memory = (a_bytes * again_a + b_bytes * again_b + c_bytes + partial) / (efficiency * rate)
            total = (compute**3 + memory**3) ** (1.0 / 3.0)
            if total < best:
                best = total
                out = (total + launch, tm, tn, s, compute, memory, waves, blocks / (sms * waves), blocks)
    return out


@njit()
def fill_gemm(b, m, n, k, f, backward, kind, row):
    """Write the features of one GEMM into `row`; its base seconds. `backward` adds the two gradients."""
    seconds, tm, tn, s, compute, memory, waves, tail, blocks = one_gemm(b, m, n, k, f, kind)
    if backward:
        seconds = one_gemm(b, m, k, n, f, 0)[0] + one_gemm(b, k, n, m, f, 1)[0]
    flops = 2.0 * b * m * n * k * (2.0 if backward else 1.0)
    a_bytes, b_bytes, c_bytes = b * m * k * f[ELEMENT], b * k * n * f[ELEMENT], b * m * n * f[OUTPUT]
    total = a_bytes + b_bytes + c_bytes
    ridge = f[PEAK] / f[RATE]
    row[0] = np.log(seconds)
    row[1] = _log2(flops)
    row[2] = _log2(2.0 * b * m * n * k / total / ridge)
    row[3] = _log2(compute / memory)
    row[4] = _log2(waves)
    row[5] = tail
    row[6] = _log2(tm * tn)
    row[7] = _log2(s)
    row[8] = _log2(blocks / f[SMS])
    row[9] = _log2(flops / f[SMS])
    row[10], row[11], row[12], row[13] = _log2(m), _log2(n), _log2(k), _log2(b)
    row[14] = _log2(m / n)
    row[15], row[16], row[17] = _pow2(m), _pow2(n), _pow2(k)
    row[18] = m / (128.0 * np.ceil(m / 128.0))
    row[19] = n / (128.0 * np.ceil(n / 128.0))
    row[20], row[21], row[22] = _log2(a_bytes / f[L2]), _log2(b_bytes / f[L2]), _log2(c_bytes / f[L2])
    row[23] = _log2(total / f[L2])
    row[24] = 1.0 if backward else 0.0
    return seconds


_R = types.Array(types.float64, 1, "C", readonly=True)
_I = types.Array(types.int32, 1, "C", readonly=True)
_M = types.Array(types.float64, 2, "C", readonly=True)


@njit(types.void(_R, _R, _R, _R, _R, _M, _I, types.float32[:, ::1], types.float64[::1]))
def gemm_rows(b, m, n, k, backward, facts, at, features, base):
    """Features (rows, >= len(FEATURES)) and base seconds (rows,) of GEMMs; row i runs on device `facts[at[i]]`."""
    for i in range(len(b)):
        base[i] = fill_gemm(b[i], m[i], n[i], k[i], facts[at[i]], backward[i] > 0, 0, features[i])


@njit(types.void(_R, _R, _R, _R, _R, _M, _I, types.float32[:, ::1], types.float64[::1]))
def split_gemm_rows(b, m, n, k, backward, facts, at, features, base):
    """As `gemm_rows`, with split-k factors up to 256 as reductions over pixels and time steps use them."""
    for i in range(len(b)):
        base[i] = fill_gemm(b[i], m[i], n[i], k[i], facts[at[i]], backward[i] > 0, 1, features[i])
