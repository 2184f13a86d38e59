"""FLOPs and bytes of op rows that state none, from their dims: the least that the op must do, each tensor moved once.

The conventions are those of the shipped tables (`datasets/shipped`), so that a row typed by hand is priced like a row
of a table. Ops that are not named here, and rows without the dims, keep NaN: nothing is known of their work.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....datasets.ops.table import OpTable
from ..analytic.accelerator.facts import element_bytes
from .families import ATTENTION_OPS, GEMM_OPS

# Tensors of m x n elements that are read or written, and FLOPs of each element, forward.
_ROWS = {
    "softmax": (2, 5), "softmax_causal_fused": (2, 5), "layernorm": (2, 6), "rmsnorm": (2, 6), "rope": (2, 6),
    "embedding": (2, 0), "masked_fill": (2, 1), "cross_entropy": (2, 6), "elementwise.gelu": (2, 8),
    "elementwise.silu_mul": (3, 4),
}  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "pow")
_BACKWARD_VECTOR, _BACKWARD_GEMM, _BACKWARD_ATTENTION = 2.0, 2.0, 2.5
_OPTIMIZER_BYTES, _OPTIMIZER_FLOPS = 20.0, 12.0
"""Of each parameter of a mixed-precision Adam step, as in the shipped rows."""


def with_work(table: OpTable) -> OpTable:
    """The table with FLOPs and bytes wherever they were absent and the dims tell them."""
    absent = np.isnan(table.flops) | np.isnan(table.bytes)
    if not absent.any():
        return table
    flops, moved = table.flops.copy(), table.bytes.copy()
    backward = table.direction.map(lambda name: name == "bwd", bool)
    for code, op in enumerate(table.op.names):
        rows = np.flatnonzero(absent & (table.op.codes == code))
        if not len(rows):
            continue
        part = table.take(rows)
        found = _work(op, part)
        if found is None:
            continue
        factor = np.where(backward[rows], found[2], 1.0)
        size = part.dtype.map(element_bytes)
        flops[rows] = np.where(np.isnan(flops[rows]), factor * found[0], flops[rows])
        moved[rows] = np.where(np.isnan(moved[rows]), factor * found[1] * size, moved[rows])
    return replace(table, flops=flops, bytes=moved)


def _work(op: str, t: OpTable) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(FLOPs, elements moved, backward over forward) of forward; None for an op that is not known."""
    b = np.where(np.isnan(t.b), 1.0, t.b)
    if op in GEMM_OPS:
        return 2.0 * b * t.m * t.n * t.k, b * (t.m * t.k + t.k * t.n + t.m * t.n), _BACKWARD_GEMM
    if op in ATTENTION_OPS:
        return (*_attention(op, t, b), _BACKWARD_ATTENTION)
    if op == "optimizer_step":
        size = t.dtype.map(element_bytes)
        return _OPTIMIZER_FLOPS * t.m, _OPTIMIZER_BYTES * t.m / size, 1.0
    if op == "conv2d":
        return (*_convolution(t), _BACKWARD_GEMM)
    tensors, each = _ROWS.get(op, (0, 0))
    if not tensors and op.startswith("elementwise."):
        tensors, each = (3 if op.partition(".")[2] in _BINARY else 2), 1
    return (each * b * t.m * t.n, tensors * b * t.m * t.n, _BACKWARD_VECTOR) if tensors else None


def _attention(op: str, t: OpTable, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heads = t.extra("heads", 1.0)
    kv_heads = t.extra("kv_heads")
    kv_heads = np.where(np.isnan(kv_heads), heads, kv_heads)
    causal = (t.extra("causal", 0.0) > 0) & (op != "attention_fwd_noncausal") & (t.m > 1)
    window = t.extra("window", 0.0)
    # The queries are the last m of n positions: under a causal mask the mean one sees n - (m - 1) / 2 keys.
    keys = np.where(causal, np.maximum(t.n - (t.m - 1) / 2, t.n / 2), t.n)
    keys = np.where(window > 0, np.minimum(keys, window), keys)
    seen = np.where(window > 0, np.minimum(t.n, window + t.m), t.n)
    return 4.0 * b * heads * t.m * keys * t.k, 2.0 * b * t.k * (heads * t.m + kv_heads * seen)


def _convolution(t: OpTable) -> tuple[np.ndarray, np.ndarray]:
    n, c, h, w, out, r, s = (t.extra(name) for name in ("n", "c", "h", "w", "k_out", "r", "s"))
    side = []
    for size, taps, axis in ((h, r, "h"), (w, s, "w")):
        stride, pad = (
            np.where(np.isnan(t.extra(f"{name}_{axis}")), t.extra(name, default), t.extra(f"{name}_{axis}"))
            for name, default in (("stride", 1.0), ("pad", 0.0))
        )
        side.append(np.floor((size + 2 * pad - taps) / stride) + 1)
    pixels = n * side[0] * side[1]
    return 2.0 * pixels * out * c * r * s, n * c * h * w + out * c * r * s + pixels * out
