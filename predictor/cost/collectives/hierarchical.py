"""Across hosts: reduce inside each host, exchange between the hosts, spread inside each host again.

Only the middle part crosses the slow wire. Of a buffer S on N hosts, 2(N-1)/N of it leaves every host for an
all-reduce, (N-1)/N for all-gather and reduce-scatter, whatever number of ranks each host has; an all-to-all sends
(N-1)/N of the buffer of each of its ranks.
"""

from . import tree


def traffic_share(kind: str, nodes: int, per_node: int) -> float:
    """Bytes that leave one host per byte of the buffer (of one rank's buffer for all-to-all and expert exchange)."""
    if kind in ("send_recv", "broadcast"):
        return 1.0
    outside = (nodes - 1) / nodes
    if kind in ("all_to_all", "moe_dispatch", "moe_combine"):
        return outside * per_node
    return 2 * outside if kind == "all_reduce" else outside


def steps(kind: str, nodes: int, per_node: int) -> int:
    """Messages one after the other: rings inside the hosts; a tree over them for all-reduce, a ring for the others."""
    if kind == "send_recv":
        return 1
    inside = max(per_node - 1, 0)
    return 2 * inside + tree.steps(nodes) if kind == "all_reduce" else inside + max(nodes - 1, 0)
