"""Families of op rows that share a base and a model: which row belongs where, its base seconds and its features.

Features of a row are, in this order: numbers of the shape (dimensionless or log2, from the base), numbers of the
device, and flags of the context (op, dtype, direction, source, framework). Which flags a family has is learned from
its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....datasets.ops.table import OpTable
from ..analytic.accelerator.facts import CONSUMER, L2, PEAK, RATE, SMS, TDP, VECTOR

DEVICE_FEATURES = (
    "log_watts_per_tflops", "log_ridge", "log_peak_per_sm", "log_l2_per_sm", "log_sms", "log_peak_over_vector",
    "consumer",
)  # fmt: skip

GEMM_OPS = ("matmul", "linear", "bmm", "trace.GEMM", "lm_head_loss")
ATTENTION_OPS = ("attention_fwd", "attention_bwd", "attention_fwd_noncausal", "attention_decode")
_PARTS = {"fwd": 0.0, "bwd_input": 1.0, "bwd_weight": 2.0, "bwd": 3.0}
_GATES = {"rnn.vanilla": 1.0, "rnn.gru": 3.0, "rnn.lstm": 4.0}
_MIB = 2.0**20
_MATRIX_TRACES = ("trace.CONV", "trace.SDPA")
_MATRIX_SHARE = 0.4
"""Share of the matrix peak that attention and convolution libraries reach on parts since Ampere; set by hand."""

# Flash-attention rows of this source state a causal mask, but their times are those of the full square: 0.32 of peak at
# head dim 128 for half the square is the known 0.64 of FlashAttention-2 for all of it. Inferred, not stated.
NOT_CAUSAL = ("estimate-train-time",)

Arrays = tuple[np.ndarray, np.ndarray]


def families_of(table: OpTable) -> np.ndarray:
    """Index into `NAMES` of every row: by op, and by whether the dims are there that the family's base needs."""
    wanted = table.op.map(_family_of_op, np.int64)
    whole = ~(np.isnan(table.m) | np.isnan(table.n) | np.isnan(table.k))
    traffic = NAMES.index("traffic")
    wanted[((wanted == NAMES.index("gemm")) | (wanted == NAMES.index("attention"))) & ~whole] = traffic
    for name, field in (("convolution", "k_out"), ("recurrent", "hidden"), ("experts", "experts")):
        wanted[(wanted == NAMES.index(name)) & np.isnan(table.extra(field))] = traffic
    return wanted


def _family_of_op(op: str) -> int:
    name = "traffic"
    if op in GEMM_OPS:
        name = "gemm"
    elif op in ATTENTION_OPS:
        name = "attention"
    elif op.startswith("conv"):
        name = "convolution"
    elif op in _GATES:
        name = "recurrent"
    elif op == "moe_ffn":
        name = "experts"
    return NAMES.index(name)


def device_features(facts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Float32 (rows, len(DEVICE_FEATURES))."""
    f = facts
    columns = np.stack([
        f[:, TDP] / (f[:, PEAK] * 1e-12), f[:, PEAK] / f[:, RATE], f[:, PEAK] / f[:, SMS], f[:, L2] / f[:, SMS],
        f[:, SMS], f[:, PEAK] / f[:, VECTOR],
    ], axis=1)  # fmt: skip
    return np.column_stack([np.log2(columns), f[:, CONSUMER]]).astype(np.float32)[at]


def _ones(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), 1.0, values)


def _zeros(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), 0.0, values)


def _backward(table: OpTable) -> np.ndarray:
    return table.direction.map(lambda name: name.startswith("bwd"), np.float64)


def _outputs(rows: int, features: Sequence[str]) -> Arrays:
    return np.zeros((rows, len(features)), np.float32), np.zeros(rows)


def _gemm(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.gemm import FEATURES, gemm_rows

    features, base = _outputs(len(table), FEATURES)
    gemm_rows(_ones(table.b), table.m, table.n, table.k, _backward(table), facts, at, features, base)
    return features, base


def _attention(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.attention import FEATURES, attention_rows

    features, base = _outputs(len(table), FEATURES)
    heads = table.extra("heads", 1.0)
    causal = table.extra("causal", 0.0) * table.op.map(lambda name: name != "attention_fwd_noncausal", np.float64)
    causal *= table.source.map(lambda name: name not in NOT_CAUSAL, np.float64)
    kv_heads = table.extra("kv_heads")
    attention_rows(
        _ones(table.b), table.m, table.n, table.k, heads, np.where(np.isnan(kv_heads), heads, kv_heads), causal,
        table.extra("window", 0.0), _backward(table), facts, at, features, base,
    )  # fmt: skip
    return features, base


def _convolution(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.composed import convolution

    one = {name: table.extra(name, 1.0) for name in ("n", "c", "h", "w", "k_out", "r", "s")}
    both = {}
    for name, default in (("stride", 1.0), ("pad", 0.0)):
        shared = table.extra(name, default)
        for side in ("h", "w"):
            own = table.extra(f"{name}_{side}")
            both[f"{name}_{side}"] = np.where(np.isnan(own), shared, own)
    part = table.direction.map(lambda name: _PARTS.get(name, 0.0), np.float64)
    features, base = convolution({**one, **both, "part": part % 3}, facts, at)
    if (whole := part == _PARTS["bwd"]).any():
        base = base.copy()
        gradients = [
            convolution({**one, **both, "part": np.full_like(part, which)}, facts, at)[1] for which in (1.0, 2.0)
        ]
        base[whole] = (gradients[0] + gradients[1])[whole]
    return features, base


def _recurrent(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.composed import recurrent

    sizes = {name: table.extra(name, 1.0) for name in ("hidden", "batch", "timesteps")}
    gates = table.op.map(lambda name: _GATES.get(name, 1.0))
    part = table.direction.map(lambda name: _PARTS.get(name, 0.0), np.float64)
    return recurrent({**sizes, "gates": gates, "part": part}, facts, at)


def _experts(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.composed import experts

    sizes = {name: table.extra(name, 1.0) for name in ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep")}
    return experts({**sizes, "skew": table.extra("dist", 0.0)}, facts, at)


def _traffic(table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    from ..analytic.accelerator.traffic import FEATURES, traffic_rows

    features, base = _outputs(len(table), FEATURES)
    # Convolutions and attention of which only FLOPs are known are matrix work; the base counts vector work.
    matrix = table.op.map(lambda op: op.startswith(_MATRIX_TRACES), bool)
    row = facts[at]
    flops = _zeros(table.flops) * np.where(matrix, 0.25 * row[:, VECTOR] / (_MATRIX_SHARE * row[:, PEAK]), 1.0)
    parts = [table.extra(name, 0.0) * _MIB for name in ("input_mb", "output_mb", "weight_mb", "act_mb")]
    traffic_rows(
        _zeros(table.m) * np.maximum(1.0, _ones(table.b)), _zeros(table.n), _zeros(table.k), flops,
        _zeros(table.bytes), _backward(table), np.ascontiguousarray(np.stack(parts, axis=1)), facts, at, features,
        base,
    )  # fmt: skip
    return features, base


NAMES = ("gemm", "attention", "convolution", "recurrent", "experts", "traffic")
_PRICES = (_gemm, _attention, _convolution, _recurrent, _experts, _traffic)


def base_prices(family: int, table: OpTable, facts: np.ndarray, at: np.ndarray) -> Arrays:
    """(shape features float32 (rows, features), base seconds) of rows that all belong to one family."""
    return _PRICES[family](table, facts, at)
