"""Wrappers: host time as differences, by hand arithmetic on made-up steps."""

import pytest
from foretrace.profiler.bench.heap import page_fault_s
from foretrace.profiler.bench.wrappers import MODELS, PLANS, Variant, line_of, wrapper_rows


@pytest.mark.parametrize(
    ("points", "slope_s", "intercept_s"),
    [
        ([(10, 30.0), (20, 50.0)], 2.0, 10.0),
        # A line through the points would start below 0: all of it is per parameter, (10 + 50) / (10 + 20) = 2.
        ([(10, 10.0), (20, 50.0)], 2.0, 0.0),
        # A falling line: all of it is per step.
        ([(20, 10.0), (10, 30.0)], 0.0, 20.0),
    ],
)
def test_line_of_two_points_is_never_negative(points, slope_s, intercept_s):
    assert line_of(points) == (pytest.approx(slope_s), pytest.approx(intercept_s))


def _variants() -> dict[tuple[str, str], Variant]:
    def made(plan: str) -> Variant:
        # 100 ops at 1 s each in a plain step.
        variant = Variant(step=None, time_s=100.0, ops=100, parameters=10, blocks=4)
        if plan == "fsdp":
            # 2 gathers of 3 s: 126 - 100 - 6 = 20 over 4 blocks and the root.
            variant.time_s, variant.collectives = 126.0, {"all_gather": 2}
        if plan == "tp":
            variant.time_s = 150.0  # 50 beyond 100 ops
        if plan == "recompute":
            variant.time_s, variant.ops = 148.0, 140  # 8 beyond 140 ops, 4 blocks
        if plan == "bf16":
            variant.time_s, variant.ops = 125.0, 120  # 5 beyond 120 ops
        if plan == "accumulate":
            variant.time_s = 400.0  # halves of 5 of 4 micro-batches: 250, and two messages of 5: 260
        if plan == "pp":
            variant.time_s = 280.0  # 20 over 2 × 5 actions
        if plan == "dp":
            variant.time_s = 133.0  # less 100, 4 of an all-reduce and 2 ops for each of 10 parameters: 9
        return variant

    return {(plan, model): made(plan) for plan in PLANS for model in MODELS}


def test_wrapper_rows():
    latency_s = {"all_reduce": 4.0, "all_gather": 3.0, "reduce_scatter": 2.0, "send_recv": 5.0}
    found = {row["kind"]: row["time_s"] for row in wrapper_rows(_variants(), latency_s)}
    assert found == {
        "fsdp_unit": pytest.approx(4.0),
        "dtensor_op": pytest.approx(0.5),
        "checkpoint_block": pytest.approx(2.0),
        "autocast_op": pytest.approx(5 / 120),
        "pipeline_action": pytest.approx(2.0),
        # Two models of equally many parameters make no line; what is beyond counts once a step.
        "ddp_parameter": 0.0,
        "ddp_step": pytest.approx(9.0),
    }


def test_page_fault_costs_something():
    assert 0 <= page_fault_s(pages=256, repetitions=3) < 1e-3
