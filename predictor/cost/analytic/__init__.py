"""Analytic prices: one small pure function per op family, (Op, Device) -> seconds.

A function returns the roofline time of the work itself; the launch floor is added once, by `analytic_time_s`. Families
register themselves by name; registering twice is our mistake. `unknown` ops are priced by their traffic and named in
the prediction.
"""

from __future__ import annotations

from collections.abc import Callable

from ....datasets.ops import Op
from ...hardware.device import Device

Cost = Callable[[Op, Device], float]

_COSTS: dict[str, Cost] = {}


def family(*names: str) -> Callable[[Cost], Cost]:
    """Register a cost function for these families (the part of `Op.op` before its dot)."""

    def register(function: Cost) -> Cost:
        for name in names:
            assert name not in _COSTS, f"family {name} has two analytic costs"
            _COSTS[name] = function
        return function

    return register


def families() -> tuple[str, ...]:
    """Every family that has an analytic price."""
    return tuple(sorted(_COSTS))


def analytic_time_s(op: Op, device: Device) -> float:
    """Roofline time plus launch of one call; a family without a function is priced by traffic like `unknown`."""
    return device.launch_s + _COSTS.get(op.family, _COSTS["unknown"])(op, device)


def roofline_s(op: Op, device: Device, *, efficiency: float = 1.0) -> float:
    """The larger of compute time at `efficiency` of peak and traffic time."""
    compute_s = op.flops / (device.peak_flops_per_s(op.dtype) * efficiency)
    return max(compute_s, op.bytes / device.bandwidth_bytes_per_s(op.bytes))


# Imported for their registrations; the order is that of the files in the folder.
from . import attention, convolution, embedding, gemm, optimizer, recurrent, rows, vector  # noqa: E402, F401
