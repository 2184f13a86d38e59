"""Row-wise families: norms, softmax, losses and pooling. Traffic, with a second pass where the rows need one."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family, roofline_s

# Vector units without fused multiply-add chains and with exponentials sustain a small part of the GEMM peak.
_VECTOR_EFFICIENCY = 0.1


@family("layernorm", "rmsnorm", "batchnorm", "groupnorm", "softmax", "log_softmax", "cross_entropy", "pool")
def row_wise(op: Op, device: Device) -> float:
    return roofline_s(op, device, efficiency=_VECTOR_EFFICIENCY)
