"""Recurrent layers: `b` dependent steps, each a GEMM of (m × k)(k × n) with a launch of its own."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family


@family("rnn")
def recurrent(op: Op, device: Device) -> float:
    return op.flops / device.peak_flops_per_s(op.dtype) + op.b * device.launch_s
