"""Collective prices by hand arithmetic: log-log between measured sizes, ring ratios between numbers of ranks."""

from __future__ import annotations

import pandas as pd
import pytest
from foretrace.predictor.cost.collectives import CollectiveCurves
from foretrace.predictor.cost.collectives.ring import steps, traffic_share
from foretrace.predictor.workload.program import Collective


def curves() -> CollectiveCurves:
    # 100 us latency, 1 GB/s: 1e-4 s at 4 B, 1 ms at 1 MB, 10 ms at 10 MB.
    points = [(4, 1e-4), (1_000_000, 1e-3), (10_000_000, 1e-2)]
    return CollectiveCurves(
        pd.DataFrame(
            [
                {
                    "kind": kind,
                    "bytes": size,
                    "ranks": 2,
                    "time_s": time_s,
                    "spread": 0.1,
                    "compute": "idle",
                    "core_share": 0.5,
                }
                for kind in ("all_reduce", "send_recv")
                for size, time_s in points
            ]
        )
    )


def reduce(size: int, ranks: int = 2) -> Collective:
    return Collective("all_reduce", size, ranks, "dp")


def test_measured_sizes_and_between_and_beyond():
    found = curves()
    assert found.price(reduce(1_000_000)).time_s == pytest.approx(1e-3)
    # Half way in log space between 1 and 10 MB: sqrt(1e-3 · 1e-2).
    assert found.price(reduce(3_162_278)).time_s == pytest.approx(10**-2.5, rel=1e-4)
    # Beyond the largest size the bandwidth of the largest holds.
    assert found.price(reduce(100_000_000)).time_s == pytest.approx(1e-1)
    assert found.price(reduce(1_000_000)).source == "measured"
    assert found.price(reduce(1_000_000)).cores == pytest.approx(0.5)


def test_other_rank_counts_follow_the_ring():
    # 4 ranks: 6 steps instead of 2, 1.5 instead of 1.0 of the buffer. Latency part 1e-4, the rest 9e-4.
    price = curves().price(reduce(1_000_000, ranks=4))
    assert price.time_s == pytest.approx(1e-4 * 3 + 9e-4 * 1.5)
    assert price.source == "analytic"
    assert price.spread > curves().price(reduce(1_000_000)).spread


def test_one_rank_costs_nothing_and_unknown_kinds_have_no_price():
    assert curves().price(reduce(1_000_000, ranks=1)).time_s == 0
    assert curves().price(Collective("all_to_all", 4, 2, "dp")) is None


@pytest.mark.parametrize(
    ("kind", "ranks", "share", "messages"),
    [
        ("all_reduce", 4, 1.5, 6),
        ("all_gather", 4, 0.75, 3),
        ("reduce_scatter", 2, 0.5, 1),
        ("broadcast", 8, 1.0, 7),
        ("send_recv", 2, 1.0, 1),
    ],
)
def test_ring_factors(kind, ranks, share, messages):
    assert traffic_share(kind, ranks) == share
    assert steps(kind, ranks) == messages
