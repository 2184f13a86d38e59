"""Gates that follow from what a device can do at most.

FLOPs are held against the dense peak whatever the cache; bytes against DRAM only where the data cannot lie in a cache:
a warm GEMM with few rows beats the DRAM roofline legitimately.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from .gate import true

EFFICIENCY_HIGH = 1.3
"""Boost clocks above the datasheet's and timer error explain less than this."""
EFFICIENCY_LOW = 1e-3
LAUNCH_S = 1e-3
"""An op shorter than this may be all launch and host time, however small its efficiency."""
CACHES = 4
"""Data larger than this many last-level caches cannot have stayed in one."""
WINOGRAD = 4.0
"""Multiplications of the direct algorithm per one of Winograd F(4x4, 3x3) (Lavin and Gray, arXiv 1509.09308)."""
RNN_INPUT = 2.0
"""`rnn.*` FLOPs count the product with the input too, which the source's runs skip: see its caveats."""

_DIRECTIONS = ["fwd", "bwd", "bwd_input", "bwd_weight"]

# Bytes of these are an upper bound or a sum of tensor sizes, not traffic; a fused causal softmax reads half of them.
_BYTES_ARE_NO_TRAFFIC = (
    ("aiconfigurator", "moe_ffn"),
    ("aceso", "layer."),
    ("aceso", "elementwise.dropout"),
    ("aceso", "elementwise.bias_dropout_add"),
    ("aceso", "softmax"),
    ("estimate-train-time", "softmax_causal_fused"),
)

# Backward of these reads at least what forward read, or multiplies twice what it multiplied. Not of the others: an add
# has no kernel, cross entropy keeps its softmax, an embedding only scatters. The first convolution of a network (conv#)
# has no input gradient.
_BACKWARD_IS_AS_MUCH = (
    r"^(?:matmul|linear|bmm|conv2d|attention|layernorm|rmsnorm|softmax|rnn\.)"
    r"|^layer\.resnet\.(?:block.*(?:conv|bn|downsample)|fc)"
    r"|^layer\.t5\..*(?:GEMM|qkv|dense|context|score|layernorm)"
)


def above_compute_peak(rows: pd.DataFrame) -> np.ndarray:
    """More than 1.3 of the dense peak, by the FLOPs that the op needs at least."""
    needed = np.ones(len(rows))
    needed[rows["op"].str.startswith("rnn.")] = RNN_INPUT
    convolution = rows["op"] == "conv2d"
    wide = {text: _filter_area(text) > 1 for text in rows.loc[convolution, "shape"].unique()}
    needed[convolution & rows["shape"].map(wide).eq(True)] = WINOGRAD
    return true(rows["flops"] / needed / rows["peak_flops_per_s"] / rows["time_s"] > EFFICIENCY_HIGH)


def _filter_area(shape: str) -> int:
    fields = json.loads(shape)
    return int(fields.get("r", 1)) * int(fields.get("s", 1))


def above_memory_bandwidth(rows: pd.DataFrame) -> np.ndarray:
    """More than 1.3 of the memory bandwidth, with more data than four times the last cache."""
    cold = rows["bytes"] > CACHES * rows["cache_bytes"]
    fast = rows["bytes"] / rows["memory_bytes_per_s"] / rows["time_s"] > EFFICIENCY_HIGH
    return true(cold & fast & ~_no_traffic(rows))


def _no_traffic(rows: pd.DataFrame) -> pd.Series:
    found = pd.Series(False, index=rows.index)
    for source, op in _BYTES_ARE_NO_TRAFFIC:
        found |= (rows["source"] == source) & rows["op"].str.startswith(op)
    return found


def below_a_thousandth(rows: pd.DataFrame) -> np.ndarray:
    """Longer than 1 ms and more than a thousand times longer than compute or memory need."""
    needed = np.fmax(rows["flops"] / rows["peak_flops_per_s"], rows["bytes"] / rows["memory_bytes_per_s"])
    return true((needed / rows["time_s"] < EFFICIENCY_LOW) & (rows["time_s"] > LAUNCH_S) & ~_no_traffic(rows))


def backward_under_half_its_forward(rows: pd.DataFrame) -> np.ndarray:
    """A backward that takes less than half of its own forward, for ops whose backward does at least as much work."""
    forward = rows["direction"] == "fwd"
    timed = rows["op"].str.contains(_BACKWARD_IS_AS_MUCH, regex=True) & ~forward & (rows["direction"] != "opt")
    if not timed.any():
        return np.zeros(len(rows), dtype=bool)
    same = ["source", "device", "dtype", "framework", "kernel", "shape", "b", "m", "n", "k"]
    problems = rows[same].assign(op=rows["op"].str.replace(r"_(?:fwd|bwd)$", "", regex=True))
    problem = problems.groupby([*same, "op"], dropna=False, sort=False).ngroup()
    times = rows["time_s"].groupby([problem, rows["direction"]]).min().unstack().reindex(columns=_DIRECTIONS)
    backward_s = times["bwd"].fillna(times["bwd_input"] + times["bwd_weight"])
    wrong = backward_s.index[backward_s < 0.5 * times["fwd"]]
    return true(timed & problem.isin(wrong))
