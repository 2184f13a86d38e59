"""What the compiled bases read of a device, by dtype: a row of plain numbers, SI units.

A fact that the catalog does not have is replaced as said beside each line; the price then says `in_range` False.
"""

from __future__ import annotations

import numpy as np

from .....datasets.catalog import DeviceFacts
from .....datasets.ops.op import DTYPE_BYTES

FACTS = (
    "peak_flops_per_s", "vector_flops_per_s", "bytes_per_s", "sm_count", "l2_bytes", "clock_hz", "tdp_w",
    "element_bytes", "output_bytes", "asynchronous", "year", "tensor_units", "gpu", "consumer",
    "datasheet_flops_per_s",
)  # fmt: skip
PEAK, VECTOR, RATE, SMS, L2, CLOCK, TDP, ELEMENT, OUTPUT, ASYNC, YEAR, TENSOR, GPU, CONSUMER, DATASHEET = range(
    len(FACTS)
)

# Peak of a dtype: the first of these that the device has. fp16 with fp32 accumulate is what frameworks run; a part
# without half-precision units computes halves in fp32.
_PEAKS = {
    "fp32": ("fp32_matrix", "fp32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16_mixed": ("fp16", "bf16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "fp8_block": ("fp8", "bf16", "fp16", "fp32"),
    "nvfp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "fp16", "fp32"),
    "fp64": ("fp32",),
}
DTYPES = tuple(_PEAKS)
"""Dtypes that have a price."""
_ELEMENT_BYTES = {**{name: float(size) for name, size in DTYPE_BYTES.items()},
                  "tf32": 4.0, "fp16_mixed": 2.0, "fp8_block": 1.0, "nvfp4": 0.5, "other": 4.0}  # fmt: skip

# Matrix instructions that run beside the softmax and the loads: wgmma (Hopper), tcgen05 (datacentre Blackwell).
# Ampere, Ada, Intel Xe and the RTX PRO Blackwell parts issue mma.sync from the warps themselves.
_ASYNCHRONOUS = ("GH100", "GB100")
_CONSUMER_MEMORY = ("GDDR",)
_NO_TENSOR_UNITS = ("Pascal", "Maxwell", "KNL", "Vega10")


def element_bytes(dtype: str) -> float:
    """Bytes of one stored element."""
    return _ELEMENT_BYTES.get(dtype, 4.0)


def peak_flops_per_s(device: DeviceFacts, dtype: str) -> float:
    """Dense peak of the units that run `dtype`; fp64 at half the fp32 rate. 1e12 when the catalog states no peak."""
    for name in _PEAKS.get(dtype, ("fp32", "fp16", "bf16")):
        if rate := device.flops_per_s.get(name):
            # Pascal parts for display run fp16 at 1/64 of fp32; libraries convert instead.
            return max(rate, device.flops_per_s.get("fp32", 0.0)) * (0.5 if dtype == "fp64" else 1.0)
    return max(device.flops_per_s.values(), default=1e12)


# fp32 FLOPs by vector units cost so many joules each that parts with a small power cap never reach their peak: board
# power over these, times the share of it that arithmetic may take. 16 nm, 12 nm, 8 to 7 nm, 5 to 4 nm. Written with the
# fp32 efficiency of one T4 (70 W) known; it caps T4, P4 and MI100 and leaves the large parts as they are.
_JOULES_PER_FP32_FLOP = {
    "Maxwell": 25e-12, "Pascal": 15e-12, "Vega10": 15e-12, "Volta": 12.8e-12, "Turing": 12.8e-12, "Ampere": 8.3e-12,
    "CDNA1": 8.3e-12, "CDNA2": 8.3e-12,
}  # fmt: skip
_JOULES_LATER = 5.6e-12
_ARITHMETIC_SHARE = 0.8


def power_capped_flops_per_s(device: DeviceFacts, peak: float) -> float:
    """fp32 rate that the board's power sustains, at most `peak`."""
    if device.tdp_w is None or device.type != "gpu":
        return peak
    joules = _JOULES_PER_FP32_FLOP.get(device.arch or "", _JOULES_LATER)
    return min(peak, _ARITHMETIC_SHARE * device.tdp_w / joules)


def facts_row(device: DeviceFacts, dtype: str) -> np.ndarray:
    """Float64 (len(FACTS),) of one device and dtype."""
    size = element_bytes(dtype)
    peak = peak_flops_per_s(device, dtype)
    return np.array([
        power_capped_flops_per_s(device, peak) if dtype == "fp32" else peak,
        device.flops_per_s.get("fp32") or peak / 8.0,  # TPUs state no vector rate
        device.memory_bytes_per_s or peak / 100.0,     # a ridge of 100 FLOP a byte, common of recent parts
        device.sm_count or 100.0,
        device.l2_bytes or 32.0 * 2**20,
        device.clock_hz or 1.5e9,
        device.tdp_w or 300.0,
        size,
        max(2.0, size),                                # quantised GEMMs write bf16
        float(device.family in _ASYNCHRONOUS),
        float(device.year or 2020),
        float(device.arch not in _NO_TENSOR_UNITS),
        float(device.type == "gpu"),
        float((device.memory_type or "").startswith(_CONSUMER_MEMORY)),
        peak,
    ])  # fmt: skip
