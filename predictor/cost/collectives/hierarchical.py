"""Across hosts: reduce inside each host, exchange between the hosts, spread inside each host again.

Only the middle part crosses the slow wire. Of a buffer S on N hosts, 2(N-1)/N of it leaves every host for an
all-reduce, (N-1)/N for all-gather and reduce-scatter, whatever number of ranks each host has; an all-to-all sends
(N-1)/N of the buffer of each of its ranks.
"""


def traffic_share(kind: str, nodes: int, per_node: int) -> float:
    """Bytes that leave one host per byte of the buffer (of one rank's buffer for all-to-all and expert exchange)."""
    if kind in ("send_recv", "broadcast"):
        return 1.0
    outside = (nodes - 1) / nodes
    if kind in ("all_to_all", "moe_dispatch", "moe_combine"):
        return outside * per_node
    return 2 * outside if kind == "all_reduce" else outside


def steps(kind: str, nodes: int, per_node: int) -> int:
    """Messages one after the other: a ring over the hosts, and the parts inside them."""
    if kind == "send_recv":
        return 1
    inside = max(per_node - 1, 0)
    across = max(nodes - 1, 0)
    return (2 if kind == "all_reduce" else 1) * (inside + across)
