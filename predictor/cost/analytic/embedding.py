"""Embedding: rows gathered by traffic; the dense gradient also clears the whole table."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family


@family("embedding")
def embedding(op: Op, device: Device) -> float:
    return op.bytes / device.bandwidth_bytes_per_s(op.bytes)
