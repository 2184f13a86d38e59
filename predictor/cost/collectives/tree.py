"""Double binary tree all-reduce, pipelined: reduce up, broadcast down (Sanders, Speck and Traeff, 2009; NCCL 2.4)."""

import math


def traffic_share(ranks: int) -> float:
    """Bytes that each rank sends per byte of the buffer: every byte goes up once and down once."""
    return 2.0 if ranks > 2 else 1.0


def steps(ranks: int) -> int:
    """Messages one after the other on the critical path."""
    return 2 * math.ceil(math.log2(ranks)) if ranks > 1 else 0
