"""Fused optimizer steps: parameter, gradient and states read once, parameter and states written once."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family


@family("optimizer_step")
def optimizer_step(op: Op, device: Device) -> float:
    return op.bytes / device.bandwidth_bytes_per_s(op.bytes)
