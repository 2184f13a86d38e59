"""In-switch reduction (NVLink SHARP): ranks push their buffer to the switch once and read the sum once.

Each rank sends and receives S(1 + 1/n) for an all-reduce: its whole buffer up as its peers' shards are reduced, and the
reduced shard that it multicasts (NCCL's NVLS algorithm, bus factor (n+1)/n in its tuner).
"""


def traffic_share(kind: str, ranks: int) -> float:
    """Bytes that each rank sends per byte of the full buffer; all-gather and reduce-scatter are as in a ring."""
    if kind == "all_reduce":
        return (ranks + 1) / ranks
    return (ranks - 1) / ranks


def steps(ranks: int) -> int:
    """Messages one after the other: up, and down."""
    return 2 if ranks > 1 else 0
