"""Closed form of a collective: its algorithm's traffic over its links, with constants fitted for each kind of wire.

A constant set is of one (backend family, topology, kind). Where nothing was measured for one, the closest set that
was: another kind on the same wires, then the same kind of another backend, then `DEFAULT`.
"""

from __future__ import annotations

import msgspec
import numpy as np

from . import saturation
from .links import HOST, MESH, NETWORK, PCIE, SOCKETS, SWITCH
from .table import Curve


class Constants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the closed form cannot know."""

    start_s: float
    """An empty message, without its steps."""
    step_s: float
    """Each message after another."""
    efficiency: float
    """Share of the wire's rate that endless messages reach."""
    half_bytes: float
    """Message at which the approach to it is half way."""
    slowness: float
    """Exponent of the approach."""


DEFAULT = Constants(start_s=8e-6, step_s=1e-6, efficiency=0.7, half_bytes=2e6, slowness=0.6)
"""Rounded from NCCL inside a node: some microseconds to launch, about 1 us a step, 0.7 of the wire."""


PRIOR_EFFICIENCY = {SWITCH: 0.72, MESH: 0.7, PCIE: 0.45, SOCKETS: 0.1, HOST: 0.2, NETWORK: 0.4}
"""Share of the wire's rate to start a fit from, where rows are few."""


def default_of(topology: str) -> Constants:
    """Constants of wires of one sort before anything is fitted."""
    return msgspec.structs.replace(DEFAULT, efficiency=PRIOR_EFFICIENCY[topology])


def group_of(curve: Curve) -> str:
    """Key of a curve's constants."""
    return f"{curve.family}/{curve.links.topology}/{curve.kind}"


def constants_of(curve: Curve, known: dict[str, Constants]) -> Constants:
    """The set of a curve, or the closest one."""
    family, topology, kind = curve.family, curve.links.topology, curve.kind
    if f"{family}/{topology}/{kind}" in known:
        return known[f"{family}/{topology}/{kind}"]
    topology = PCIE if topology == SOCKETS else topology
    for key in (f"{family}/{topology}/{kind}", f"nccl/{topology}/{kind}", f"{family}/{topology}/all_reduce",
                f"nccl/{topology}/all_reduce", f"nccl/{topology}/send_recv", f"{family}/switch/{kind}",
                f"nccl/switch/{kind}"):  # fmt: skip
        if key in known:
            return known[key]
    return default_of(topology)


def seconds(curve: Curve, size_bytes: np.ndarray, constants: Constants) -> np.ndarray:
    """Seconds of messages of `size_bytes` (float64, > 0) of one curve."""
    full = np.full_like(size_bytes, 1.0)
    return saturation.seconds(
        (constants.start_s + constants.step_s * curve.traffic.steps) * full,
        curve.traffic.share * size_bytes,
        constants.efficiency * curve.links.bytes_per_s * full,
        size_bytes,
        constants.half_bytes * full,
        constants.slowness * full,
    )
