"""Bus bandwidth of collectives, and the most that the links between their ranks allow."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .gate import true

LINK_SLACK = 1.02
"""Timer error of a bus bandwidth."""
NVLS = 2.0
"""In-switch reduction sends each byte once where a ring sends it twice."""

NETWORKS = {
    "infiniband ndr": 50e9,     # one port of 400 Gb/s a host
    "slingshot-11": 4 * 25e9,   # four ports of 200 Gb/s a host
    "100gb infiniband": 12.5e9,
    "omni-path 100": 2 * 12.5e9,  # the 7250F has two ports
}  # fmt: skip
"""Words of `interconnect` -> bytes/s that one host can send."""


def bus_over_link(rows: pd.DataFrame) -> np.ndarray:
    """A bus bandwidth over the rate of the link that the bytes must cross."""
    return true(bus_bytes_per_s(rows) > LINK_SLACK * link_limit(rows))


def bus_bytes_per_s(rows: pd.DataFrame) -> pd.Series:
    """Bus bandwidth in the nccl-tests sense: bytes / time x the share of them that each rank's link carries.

    NaN for kinds without such a share (`moe_*`). Factors: NCCL tests, PERFORMANCE.md.
    """
    ranks = rows["ranks"].astype(float)
    share = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0 + 0 * ranks, "broadcast": 1.0 + 0 * ranks}
    share |= dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), (ranks - 1) / ranks)
    factor = pd.Series(np.nan, index=rows.index)
    for kind, values in share.items():
        factor = factor.where(rows["collective"] != kind, values)
    return factor * rows["bytes"].astype(float) / rows["time_s"]


def link_limit(rows: pd.DataFrame) -> pd.Series:
    """Largest bus bandwidth that the links between the ranks of a row allow, bytes/s; NaN where they are not known."""
    wires = rows["interconnect"].str.lower()
    inside = rows["nodes"].fillna(1).astype(float) <= 1
    limit = pd.Series(np.nan, index=rows.index)
    limit = limit.where(~wires.str.contains("nvlink|nvswitch"), rows["link_bytes_per_s"])
    limit = limit.where(~wires.str.startswith("pcie"), rows["pcie_bytes_per_s"])
    reduced = rows["collective"].isin(("all_reduce", "reduce_scatter", "all_gather"))
    nvls = wires.str.contains("nvswitch|nvl72|nvls") & wires.str.contains("nvlink4|nvlink5")
    limit = limit.where(~(nvls & reduced), NVLS * limit)
    between = pd.Series(np.nan, index=rows.index)
    for words, bytes_per_s in NETWORKS.items():
        between = between.where(~wires.str.contains(words, regex=False), bytes_per_s)
    # n ranks on N hosts send 2(n-1)/n of the buffer each, but only 2(N-1)/N of it crosses: at most twice as much.
    spread = np.where(rows["ranks"].astype(float) > rows["nodes"].fillna(1).astype(float), 2.0, 1.0)
    return limit.where(inside, between * spread)
