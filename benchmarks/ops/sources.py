"""Raw tables for the benchmark, and the rows of each figure. Only here do the filters of the figures stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.fit import believable

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"
VALIDATION = ("A100-SXM4-80GB", "A40", "H200-SXM-141GB", "GB300", "RTX-PRO-6000-SE")
"""Devices on which choices were made; all others were scored once."""
NEUSIGHT_TRAIN = ("P100-PCIE-16GB", "V100-PCIE-32GB", "T4", "A100-PCIE-40GB")

_COLUMNS = [
    "source", "device", "op", "dtype", "direction", "split", "b", "m", "n", "k", "shape", "flops", "bytes",
    "latency_ms", "framework", "kernel",
]  # fmt: skip


def load(*names: str, ops: tuple[str, ...] = (), dtypes: tuple[str, ...] = ()) -> OpTable:
    """Rows of the raw tables `names` of these ops and dtypes (all when empty), believable ones only."""
    frames = []
    for name in names:
        frame = pd.read_parquet(FOLDER / "ops" / f"{name}.parquet", columns=_COLUMNS)
        if ops:
            frame = frame[frame.op.isin(ops)]
        if dtypes:
            frame = frame[frame.dtype.isin(dtypes)]
        frames.append(frame.astype(dict.fromkeys(frame.select_dtypes("category").columns, object)))
    table = OpTable.of_frame(pd.concat(frames, ignore_index=True), where=", ".join(names), times=True)
    return table.take(np.flatnonzero(believable(table)))


def large_gemms() -> OpTable:
    """fp16 and bf16 GEMMs with m >= 256 and more than 1 GFLOP, without the wall-clock rows of Aceso and TPUs."""
    table = load(
        "aiconfigurator", "estimate_train_time", "vidur", "llmservingsim",
        ops=("matmul", "linear", "bmm"), dtypes=("fp16", "bf16"),
    )  # fmt: skip
    tpu = table.device.map(lambda name: name.startswith("TPU"), bool)
    return table.take(np.flatnonzero((table.m >= 256) & (table.flops > 1e9) & ~tpu))


def large_fp32_gemms() -> OpTable:
    """NeuSight's and DeepBench's fp32 GEMMs with m >= 256 and more than 1 GFLOP."""
    table = load("neusight", "deepbench", ops=("matmul", "linear", "bmm"), dtypes=("fp32",))
    cpu = table.device.are("XeonPhi-KNL7250F")
    return table.take(np.flatnonzero((table.m >= 256) & (table.flops > 1e9) & ~cpu))


def long_attention() -> OpTable:
    """Attention forward without window, at least 256 queries and 50 us; Triton kernels, a slow case apart, left out."""
    table = load("aiconfigurator", "estimate_train_time", ops=("attention_fwd",))
    assert table.time_s is not None
    triton = table.kernel.map(lambda name: "triton" in name, bool)
    full = table.extra("window", 0.0) == 0
    return table.take(np.flatnonzero((table.m >= 256) & (table.time_s > 50e-6) & full & ~triton))


def convolutions() -> OpTable:
    """fp32 convolutions of NeuSight and DeepBench, forward and both gradients."""
    return load("neusight", "deepbench", ops=("conv2d",), dtypes=("fp32",))
