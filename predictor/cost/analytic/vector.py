"""Vector families: traffic alone. Views move nothing and cost host time only."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family, roofline_s


@family("elementwise", "copy", "fill", "reduce", "index", "unknown")
def vector(op: Op, device: Device) -> float:
    return op.bytes / device.bandwidth_bytes_per_s(op.bytes)


@family("random")
def random(op: Op, device: Device) -> float:
    # A counter-based generator costs some tens of operations a number.
    return roofline_s(op, device, efficiency=0.02)


@family("view")
def view(op: Op, device: Device) -> float:
    return 0.0
