"""Fused attention on an accelerator: matrix work and softmax work of 128-query blocks, then memory.

B batch, H query heads, G key-value heads, M queries, N keys, D head dim. One thread block owns 128 queries of one head.
A causal mask is counted in whole 128 x 128 squares, a sliding window likewise; queries are the last M of N positions.

Matrix and softmax units overlap: softly where warps issue both (mma.sync), better where matrix instructions run beside
them. After the notes on FlashAttention-2 and -3 (Dao 2023; Shah et al. 2024): softmax takes 16 exponentials a cycle and
multiprocessor, which bounds small head dims on fast parts. Constants were set by hand.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ....engine.compiled import njit
from .facts import ASYNC, CLOCK, ELEMENT, L2, PEAK, RATE, SMS

FEATURES = (
    "log_base", "log_q", "log_kv", "log_heads", "log_d", "log_group", "log_blocks_per_sm", "tail",
    "softmax_over_matrix", "memory_over_matrix", "longest_over_even", "log_window", "causal", "kv_over_l2", "pow2_q",
    "asynchronous", "backward", "decode", "log_flops", "query_fill",
)  # fmt: skip

_BLOCK = 128.0
_LAUNCH_S = 5e-6
_EXPONENTIALS = 16.0
_OVERLAP, _OVERLAP_ASYNC = 1.5, 2.5
_MATRIX_EFFICIENCY = 0.8
_MEMORY_EFFICIENCY = 0.85
# Backward: five products instead of two, and both orders of the loop nest.
_BACKWARD = 2.5 * 1.2


@njit()
def _log2(x):
    return np.log2(max(x, 1e-30))


@njit()
def _squares(m, n, causal, window):
    """(key squares of all query blocks, of the longest block), in blocks of 128 x 128."""
    total, longest = 0.0, 0.0
    rows = int(np.ceil(m / _BLOCK))
    if not causal and window <= 0:
        each = np.ceil(n / _BLOCK)
        return rows * each, each
    if rows > 4096:  # a million queries: the mask in closed form
        each = n / _BLOCK
        if window > 0:
            each = min(each, window / _BLOCK + 1.0)
            return rows * each, each
        return rows * (each - 0.5 * rows + 0.5), each
    for i in range(rows):
        last = min(n, n - m + min(m, (i + 1) * _BLOCK)) if causal else n
        first = 0.0
        if window > 0:
            first = max(0.0, n - m + i * _BLOCK - window + 1)
        count = np.ceil(max(last, 1.0) / _BLOCK) - np.floor(min(first, n - 1) / _BLOCK)
        total += count
        longest = max(longest, count)
    return total, longest


@njit()
def fill_attention(b, m, n, d, heads, kv_heads, causal, window, backward, f, row):
    """Write the features of one call into `row`; its base seconds. `window` 0 is full attention."""
    sms, peak, rate = f[SMS], f[PEAK] * _MATRIX_EFFICIENCY, f[RATE]
    group = max(1.0, heads / kv_heads)
    # Decoding packs the query heads of a group into one block and splits the keys over the device.
    queries, owners = (group, kv_heads) if m == 1 else (m, heads)
    total, longest = _squares(queries, n, causal and m > 1, window)
    rows = np.ceil(queries / _BLOCK)
    blocks = b * owners * rows
    area = b * owners * total * _BLOCK * _BLOCK
    if m == 1:
        keys = min(n, window) if window > 0 else n
        splits = max(1.0, min(np.floor(sms / blocks), np.ceil(keys / 256.0)))
        area = b * owners * group * keys
        blocks = blocks * splits
        longest = keys / splits / _BLOCK * group / _BLOCK
    even = 4.0 * area * d / peak
    alone = 4.0 * longest * _BLOCK * _BLOCK * d / (peak / sms)
    matrix = max(even, alone)
    softmax = max(area / sms, longest * _BLOCK * _BLOCK) / (_EXPONENTIALS * f[CLOCK])
    p = _OVERLAP_ASYNC if f[ASYNC] > 0 else _OVERLAP
    core = (matrix**p + softmax**p) ** (1.0 / p)
    seen = min(n, window + m) if window > 0 else n
    kv_bytes = 2.0 * b * kv_heads * seen * d * f[ELEMENT]
    moved = 2.0 * b * heads * m * d * f[ELEMENT] + kv_bytes
    memory = moved / (_MEMORY_EFFICIENCY * rate)
    if backward:
        core, memory = core * _BACKWARD, memory * 2.0
    seconds = (core**4 + memory**4) ** 0.25 + _LAUNCH_S
    row[0] = np.log(seconds)
    row[1], row[2], row[3], row[4], row[5] = _log2(m), _log2(n), _log2(b * heads), _log2(d), _log2(group)
    row[6] = _log2(blocks / sms)
    row[7] = blocks / (sms * np.ceil(blocks / sms))
    row[8] = _log2(softmax / matrix)
    row[9] = _log2(memory / matrix)
    row[10] = _log2(alone / even)
    row[11] = _log2(window) if window > 0 else 24.0
    row[12] = 1.0 if causal else 0.0
    row[13] = _log2(kv_bytes / f[L2])
    row[14] = 1.0 if np.floor(m / 64.0) * 64.0 == m else 0.0
    row[15] = f[ASYNC]
    row[16] = 1.0 if backward else 0.0
    row[17] = 1.0 if m == 1 else 0.0
    row[18] = _log2(4.0 * area * d / sms)
    row[19] = m / (_BLOCK * np.ceil(m / _BLOCK))
    return seconds


_R = types.Array(types.float64, 1, "C", readonly=True)
_I = types.Array(types.int32, 1, "C", readonly=True)
_M = types.Array(types.float64, 2, "C", readonly=True)


@njit(types.void(_R, _R, _R, _R, _R, _R, _R, _R, _R, _M, _I, types.float32[:, ::1], types.float64[::1]))
def attention_rows(b, m, n, d, heads, kv_heads, causal, window, backward, facts, at, features, base):
    """Features (rows, >= len(FEATURES)) and base seconds (rows,); row i runs on device `facts[at[i]]`."""
    for i in range(len(b)):
        base[i] = fill_attention(
            b[i], m[i], n[i], d[i], heads[i], kv_heads[i], causal[i] > 0, window[i], backward[i] > 0, facts[at[i]],
            features[i],
        )  # fmt: skip
