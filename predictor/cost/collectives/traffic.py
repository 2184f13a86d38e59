"""Which algorithm moves a collective's bytes over which wire: bytes and messages per rank, from the closed forms."""

from __future__ import annotations

from dataclasses import dataclass

from . import exchange, hierarchical, in_switch, ring
from .links import NETWORK, Links

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "moe_dispatch", "moe_combine",
)  # fmt: skip
"""Collectives that have a price."""

MOE = ("moe_dispatch", "moe_combine")
NVLS_FROM_RANKS = 4
"""Reduction in the switch pays, and NCCL takes it, from about four ranks on."""


@dataclass(frozen=True)
class Traffic:
    """What one rank (one host, where hosts are crossed) does for one collective."""

    algorithm: str
    """ring | in_switch | exchange | hierarchical | direct."""
    share: float
    """Bytes on the bounding wire per byte of the buffer."""
    steps: int
    """Messages one after the other."""


def traffic_of(kind: str, links: Links, *, ranks: int, nodes: int = 1, per_node: int = 1) -> Traffic:
    """Traffic of a collective of `KINDS` over `links`."""
    if links.topology == NETWORK:
        return Traffic(
            "hierarchical", hierarchical.traffic_share(kind, nodes, per_node),
            hierarchical.steps(kind, nodes, per_node),
        )  # fmt: skip
    if kind == "send_recv":
        return Traffic("direct", 1.0, 1)
    if kind == "all_to_all" or kind in MOE:
        return Traffic("exchange", exchange.traffic_share(ranks), exchange.steps(ranks))
    if links.reduces and ranks >= NVLS_FROM_RANKS and kind == "all_reduce":
        return Traffic("in_switch", in_switch.traffic_share(kind, ranks), in_switch.steps(ranks))
    return Traffic("ring", ring.traffic_share(kind, ranks), ring.steps(kind, ranks))
