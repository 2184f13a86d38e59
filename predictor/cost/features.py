"""Where an op lies among its kin: the group in which measured times are comparable, and coordinates within it.

Coordinates are log2 of sizes, so that a distance of 1 is a factor of two in one dim. Flags that change the code that
runs (layout, causal, operand pattern) are coordinates too, weighted by how far they keep two ops apart.
"""

from __future__ import annotations

from math import log2

import numpy as np

from ...datasets.ops import Op

_GEMM = frozenset({"matmul", "linear", "bmm"})
_ROWS = frozenset({"layernorm", "rmsnorm", "batchnorm", "groupnorm", "softmax", "log_softmax", "cross_entropy"})
_LAYOUTS = {"nn": 0.0, "nt": 0.7, "tn": 1.4, "tt": 2.1}


def _log2(value: float) -> float:
    return log2(value) if value > 1 else 0.0


def group_of(op: Op) -> str:
    """Name of the group whose measured rows may price this op, finest first."""
    if op.family in _GEMM:
        return f"gemm|{op.dtype}"
    if op.family.startswith("conv"):
        return f"{op.op}|{op.direction}|{dict(op.shape).get('wanted', '')}|{op.dtype}"
    if op.family in ("elementwise", "copy", "fill", "random", "index"):
        return f"{op.op}|{op.dtype}"
    if op.family == "reduce":
        return f"{op.op}|{dict(op.shape).get('over')}|{op.dtype}"
    return f"{op.op}|{op.direction}|{op.dtype}"


def kin_of(op: Op) -> str:
    """The wider group to fall back on when nothing was measured in the op's own."""
    family = "vector" if op.family in ("elementwise", "unknown", "copy", "fill", "index", "reduce") else op.family
    return f"{'gemm' if family in _GEMM else family}|{op.direction if family != 'vector' else ''}|{op.dtype}"


def coordinates(op: Op) -> np.ndarray:
    """Coordinates of an op within its group, float64 (d,), log2 units."""
    shape = dict(op.shape)
    if op.family in _GEMM:
        # addmm and mm run the same kernel; a batch of GEMMs is parallel over the batch first.
        layout = _LAYOUTS.get(str(shape.get("layout", "nn")), 0.0)
        return np.array([_log2(op.m), _log2(op.n), _log2(op.k), _log2(op.b), 3.0 * (op.family == "bmm"), layout])
    if op.family.startswith("conv"):
        window = str(shape.get("window", "1"))
        stride = max(int(part) for part in str(shape.get("stride", "1")).split("x"))
        taps = float(np.prod([int(part) for part in window.split("x")]))
        groups = float(shape.get("groups", 1) or 1)
        return np.array([_log2(op.m), _log2(op.n), _log2(op.k), 0.7 * _log2(taps), 1.5 * _log2(stride), _log2(groups)])
    if op.family.startswith("attention"):
        heads = float(shape.get("heads", 1) or 1)
        return np.array(
            [_log2(op.b * heads), _log2(op.m), _log2(op.n), _log2(op.k), 2.0 * float(shape.get("causal", 0) or 0)]
        )
    if op.family in _ROWS:
        return np.array([_log2(op.m), _log2(op.n)])
    if op.family == "embedding":
        return np.array([_log2(op.m), _log2(op.n), 0.5 * _log2(op.k)])
    if op.family == "rnn":
        return np.array([_log2(op.b), _log2(op.m), _log2(op.n), _log2(op.k)])
    if op.family == "optimizer_step":
        return np.array([_log2(op.m), 0.5 * _log2(op.n)])
    # Vector ops: traffic decides; how it splits into reads and writes tells scalar, broadcast and in-place forms apart,
    # and the row length matters for reductions and strided copies.
    split = _log2(1.0 + op.bytes_read) - _log2(1.0 + op.bytes_written)
    inner = 0.5 * _log2(op.n) if op.family == "reduce" else 0.15 * _log2(op.n)
    return np.array([_log2(op.bytes), float(np.clip(split, -4, 4)), inner])
