"""Ops made of GEMMs on an accelerator: convolutions, recurrent layers, experts of a mixture.

Each is the GEMM base on other dims, so the loops stay in one file with it (numba's cache knows a change by the hash of
one source file): this file only names which GEMM stands for which op.
"""

from __future__ import annotations

import numpy as np

from .facts import ELEMENT, L2, RATE
from .gemm import FEATURES as GEMM_FEATURES
from .gemm import gemm_rows, split_gemm_rows

CONVOLUTION_FEATURES = (
    *GEMM_FEATURES, "log_base_all", "log_window", "stride", "log_pixels", "log_c", "log_k_out", "winograd", "pointwise",
    "input_gradient", "weight_gradient", "log_input_bytes_over_l2", "log_traffic_over_base",
)  # fmt: skip
RECURRENT_FEATURES = (
    *GEMM_FEATURES, "log_base_all", "log_hidden", "log_batch", "log_steps", "gates", "input_gradient",
    "weight_gradient", "weights_over_l2", "log_step_s",
)  # fmt: skip
EXPERT_FEATURES = (
    *GEMM_FEATURES, "log_base_all", "log_tokens", "log_experts", "log_top_k", "log_ep", "log_tp", "log_active",
    "log_tokens_per_expert", "skew", "log_weights_over_l2", "log_traffic_over_base",
)  # fmt: skip

_LAUNCH_S = 4e-6
_STEP_S = 6e-6
"""Synchronisation of one dependent step of a recurrent layer: a kernel launch inside a library loop."""
_MEMORY_EFFICIENCY = 0.85


def _log2(values: np.ndarray) -> np.ndarray:
    return np.log2(np.maximum(values, 1e-30))


def _gemm(rows: int, width: int, dims: tuple, facts: np.ndarray, at: np.ndarray, loop=gemm_rows) -> tuple:
    features, base = np.zeros((rows, width), np.float32), np.zeros(rows)
    loop(*(np.ascontiguousarray(np.maximum(dim, 1.0)) for dim in dims), np.zeros(rows), facts, at, features, base)
    return features, base


def convolution(table: dict[str, np.ndarray], facts: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(features, base seconds) of 2-d convolutions: n, c, h, w, k_out, r, s, strides, pads and `part` (0 forward,
    1 gradient of the input, 2 of the weight), each float64 (rows,).

    Implicit GEMM: outputs (n·p·q) x k_out over c·r·s; its gradients with the roles of the three exchanged.
    """
    n, c, k = table["n"], table["c"], table["k_out"]
    r, s = table["r"], table["s"]
    p = np.floor((table["h"] + 2 * table["pad_h"] - r) / table["stride_h"]) + 1
    q = np.floor((table["w"] + 2 * table["pad_w"] - s) / table["stride_w"]) + 1
    p, q = np.maximum(p, 1.0), np.maximum(q, 1.0)
    pixels, part = n * p * q, table["part"]
    taps, strides = r * s, table["stride_h"] * table["stride_w"]
    image = n * table["h"] * table["w"]
    dims = (
        np.ones_like(n),
        np.choose(part.astype(int), [pixels, image, k]),
        np.choose(part.astype(int), [k, c, c * taps]),
        np.choose(part.astype(int), [c * taps, np.maximum(1.0, k * taps / strides), pixels]),
    )
    features, base = _gemm(len(n), len(CONVOLUTION_FEATURES), dims, facts, at, split_gemm_rows)
    row = facts[at]
    moved = (n * c * table["h"] * table["w"] + pixels * k + c * k * taps) * row[:, ELEMENT]
    traffic = moved / (_MEMORY_EFFICIENCY * row[:, RATE])
    # The implicit matrix is never stored, so its memory term is replaced by the tensors': total³ = compute³ + memory³
    # with the ratio of the two among the features gives the compute term back.
    ratio = 2.0 ** features[:, GEMM_FEATURES.index("compute_over_memory")].astype(np.float64)
    compute = (base - _LAUNCH_S) * ratio / np.cbrt(1.0 + ratio**3)
    total = np.cbrt(np.maximum(compute, 1e-9) ** 3 + traffic**3) + _LAUNCH_S
    extra = (
        np.log(total), _log2(taps), strides, _log2(pixels), _log2(c), _log2(k), (r == 3) & (s == 3) & (strides == 1),
        taps == 1, part == 1, part == 2, _log2(n * c * table["h"] * table["w"] * row[:, ELEMENT] / row[:, L2]),
        _log2(traffic / total),
    )  # fmt: skip
    features[:, len(GEMM_FEATURES) :] = np.stack(extra, axis=1)
    return features, total


def recurrent(table: dict[str, np.ndarray], facts: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(features, base seconds) of recurrent layers: hidden, batch, timesteps, gates (1, 3 or 4), `part`.

    Forward and input gradient are dependent steps of (gates·hidden x hidden)(hidden x batch) that re-read the weights
    where they do not fit on chip; the weight gradient is one GEMM over all steps.
    """
    hidden, batch, steps, gates, part = (table[name] for name in ("hidden", "batch", "timesteps", "gates", "part"))
    one = np.ones_like(hidden)
    features, step = _gemm(
        len(hidden), len(RECURRENT_FEATURES), (one, gates * hidden, batch, hidden), facts, at, gemm_rows
    )
    _, whole = _gemm(
        len(hidden), len(RECURRENT_FEATURES), (one, gates * hidden, hidden, batch * steps), facts, at, split_gemm_rows
    )
    dependent = steps * (step + _STEP_S)
    total = np.where(part == 2, whole, np.where(part == 3, dependent + whole, dependent))
    weights = gates * hidden * hidden * facts[at][:, ELEMENT]
    extra = (
        np.log(total), _log2(hidden), _log2(batch), _log2(steps), gates, part == 1, part == 2,
        _log2(weights / facts[at][:, L2]), np.log(step),
    )  # fmt: skip
    features[:, len(GEMM_FEATURES) :] = np.stack(extra, axis=1)
    return features, total


def experts(table: dict[str, np.ndarray], facts: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(features, base seconds) of one rank's expert layer: tokens, hidden, inter, topk, experts, tp, ep, skew.

    tokens·topk assignments fall on the experts of ep ranks; those with at least one token read their weights. Gate and
    up are one grouped GEMM to 2·inter/tp, down is one from inter/tp. `skew` is the exponent of a power-law load, 0
    when balanced.
    """
    tokens, hidden, top_k = table["tokens"], table["hidden"], table["topk"]
    local = np.maximum(1.0, np.floor(table["experts"] / table["ep"]))
    inter = np.maximum(1.0, table["inter"] / table["tp"])
    assigned = np.maximum(1.0, tokens * top_k * local / table["experts"])
    active = np.maximum(1.0, local * -np.expm1(assigned * np.log1p(-np.minimum(1.0 / local, 1 - 1e-9))))
    each = np.ceil(assigned / active)
    up_features, up = _gemm(len(tokens), len(EXPERT_FEATURES), (active, each, 2.0 * inter, hidden), facts, at)
    _, down = _gemm(len(tokens), len(EXPERT_FEATURES), (active, each, hidden, inter), facts, at)
    row = facts[at]
    weights = 3.0 * active * hidden * inter * row[:, ELEMENT]
    traffic = (weights + 4.0 * assigned * hidden * row[:, ELEMENT]) / (_MEMORY_EFFICIENCY * row[:, RATE])
    total = up + down + 2.0 * _LAUNCH_S
    extra = (
        np.log(total), _log2(tokens), _log2(table["experts"]), top_k, _log2(table["ep"]), _log2(table["tp"]),
        _log2(active), _log2(assigned / local), table["skew"], _log2(weights / row[:, L2]), _log2(traffic / total),
    )  # fmt: skip
    up_features[:, len(GEMM_FEATURES) :] = np.stack(extra, axis=1)
    return up_features, total
