"""Ring algorithm: what share of the buffer every rank sends, and in how many steps.

all-reduce 2(n-1)/n of the buffer in 2(n-1) steps; all-gather and reduce-scatter (n-1)/n in n-1 steps (Patarasuk and
Yuan, 2009; the same factors as nccl-tests' bus bandwidth). broadcast is pipelined: the whole buffer once.
"""


def traffic_share(kind: str, ranks: int) -> float:
    """Bytes that each rank sends per byte of the full buffer."""
    if kind == "send_recv":
        return 1.0
    if ranks <= 1 or kind == "barrier":
        return 0.0
    ring = (ranks - 1) / ranks
    return {"all_reduce": 2 * ring, "all_gather": ring, "reduce_scatter": ring, "all_to_all": ring, "broadcast": 1.0}[
        kind
    ]


def steps(kind: str, ranks: int) -> int:
    """Messages one after the other on the critical path."""
    if kind == "send_recv":
        return 1
    return {"all_reduce": 2 * (ranks - 1)}.get(kind, ranks - 1)
