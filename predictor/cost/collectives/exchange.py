"""All-to-all and the expert exchange of MoE layers: everybody sends a different part to everybody.

`bytes` of moe_dispatch and moe_combine is tokens x hidden x top-k x element size of one rank: what it would send if no
two experts of a token shared a rank.
"""


def traffic_share(ranks: int) -> float:
    """Bytes that each rank sends per byte that it holds: all but its own part."""
    return (ranks - 1) / ranks


def steps(ranks: int) -> int:
    """All messages are in flight together; starting one to each peer takes its time."""
    return max(ranks - 1, 0)
