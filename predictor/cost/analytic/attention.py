"""Attention: GEMM work of the scores and values plus the exponentials of the softmax.

One exponential per score; on a CPU about 8 vector operations each (polynomial of degree 5 and range reduction, as in
Cephes expf), so they count 16 FLOPs beside the 4·d of the GEMMs.
"""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family

_EXP_FLOPS = 16.0


@family("attention_fwd", "attention_bwd")
def attention(op: Op, device: Device) -> float:
    gemms = 5 if op.family == "attention_bwd" else 2
    scores = op.flops / (2.0 * gemms * max(1, op.k))
    compute_s = (op.flops + _EXP_FLOPS * scores) / device.peak_flops_per_s(op.dtype)
    return max(compute_s, op.bytes / device.bandwidth_bytes_per_s(op.bytes))
