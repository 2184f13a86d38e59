import pytest
from foretrace.datasets.shipped import physics
from foretrace.datasets.shipped.gate import limits

# T4: 8.1 TFLOP/s fp32, 65 TFLOP/s fp16, 320 GB/s, L2 of 4 MiB.
PEAK, BANDWIDTH, L2 = 8.1e12, 320e9, 4 * 2**20


def flagged(gate, rows):
    return gate(limits(rows)).tolist()


def test_faster_than_the_peak_allows(op_rows):
    rows = op_rows(
        {"flops": PEAK, "time_s": 1.0},
        {"flops": PEAK, "time_s": 0.78},  # 1.28 of the peak
        {"flops": PEAK, "time_s": 0.76},  # 1.32
        {"flops": PEAK, "time_s": 0.76, "dtype": "fp16"},  # tensor cores
        {"flops": PEAK, "time_s": 0.76, "dtype": "bf16"},  # a T4 has no bf16 figure: its fp16 one bounds it
        {"flops": PEAK, "time_s": 0.76, "dtype": "fp8"},  # not known: nothing is flagged
        {"flops": None, "time_s": 0.76},
    )
    assert flagged(physics.above_compute_peak, rows) == [False, False, True, False, False, False, False]


def test_winograd_may_exceed_the_peak_and_a_1x1_filter_may_not(op_rows):
    # F(4x4, 3x3) multiplies a quarter of the direct algorithm: up to 4 x 1.3 = 5.2 peaks.
    wide, narrow = '{"r":3,"s":3}', '{"r":1,"s":1}'
    rows = op_rows(
        {"op": "conv2d", "shape": wide, "flops": PEAK, "time_s": 1 / 5},
        {"op": "conv2d", "shape": wide, "flops": PEAK, "time_s": 1 / 5.3},
        {"op": "conv2d", "shape": narrow, "flops": PEAK, "time_s": 1 / 1.4},
        {"op": "rnn.lstm", "flops": PEAK, "time_s": 1 / 2.5},  # half of the FLOPs did not run: up to 2.6
        {"op": "rnn.lstm", "flops": PEAK, "time_s": 1 / 2.7},
    )
    assert flagged(physics.above_compute_peak, rows) == [False, True, True, False, True]


def test_faster_than_memory_allows_counts_only_where_no_cache_can_hold_it(op_rows):
    def row(size, rate, **changes):
        return {"bytes": float(size), "time_s": size / (rate * BANDWIDTH), **changes}

    rows = op_rows(
        row(4 * L2, 3.0),  # fits four times into the cache: a warm GEMM beats DRAM legitimately
        row(4 * L2 + 64, 3.0),
        row(64 * L2, 1.25),
        row(64 * L2, 1.35),
        row(64 * L2, 3.0, source="aiconfigurator", op="moe_ffn"),  # its bytes are an upper bound
        row(64 * L2, 3.0, source="aceso", op="layer.resnet.fc"),
    )
    assert flagged(physics.above_memory_bandwidth, rows) == [False, True, False, True, False, False]


def test_a_small_op_may_be_all_launch(op_rows):
    rows = op_rows(
        {"flops": 1e3, "bytes": 1e3, "time_s": 50e-6},  # 3 ns of memory, 50 us of launch
        {"flops": 1e3, "bytes": 1e3, "time_s": 2e-3},
        {"flops": 1e-2 * PEAK, "bytes": 1e3, "time_s": 2.0},  # 10 ms of compute in 2 s: 0.5 %
        {"flops": 1e-3 * PEAK, "bytes": 1e3, "time_s": 2.0},  # 0.05 %
    )
    assert flagged(physics.below_a_thousandth, rows) == [False, True, False, True]


@pytest.mark.parametrize("op", ["linear", "attention_fwd", "layernorm", "layer.t5.enc-attention-dense"])
def test_backward_of_a_product_takes_at_least_half_its_forward(op_rows, op):
    backward = op.replace("_fwd", "_bwd")
    rows = op_rows(
        {"op": op, "time_s": 1e-3},
        {"op": backward, "direction": "bwd", "time_s": 0.49e-3},
        {"op": op, "time_s": 1e-3, "m": 64},
        {"op": backward, "direction": "bwd", "time_s": 0.51e-3, "m": 64},
        {"op": backward, "direction": "bwd", "time_s": 1e-9, "m": 65},  # no forward of its own
    )
    assert flagged(physics.backward_under_half_its_forward, rows) == [False, True, False, False, False]


def test_a_backward_that_has_less_to_do_is_no_fault(op_rows):
    for op in ("elementwise.add", "cross_entropy", "embedding", "layer.resnet.conv#"):
        rows = op_rows({"op": op, "time_s": 1e-3}, {"op": op, "direction": "bwd", "time_s": 1e-4})
        assert not any(flagged(physics.backward_under_half_its_forward, rows))


def test_both_halves_of_a_convolution_are_its_backward(op_rows):
    def row(direction, seconds, **changes):
        return {"op": "conv2d", "shape": '{"r":3,"s":3}', "direction": direction, "time_s": seconds, **changes}

    rows = op_rows(
        row("fwd", 1e-3), row("bwd_input", 0.3e-3), row("bwd_weight", 0.3e-3),
        row("fwd", 1e-3, b=2), row("bwd_input", 0.2e-3, b=2), row("bwd_weight", 0.2e-3, b=2),
        row("fwd", 1e-3, b=3), row("bwd_input", 0.2e-3, b=3),  # one half alone says nothing
    )  # fmt: skip
    assert flagged(physics.backward_under_half_its_forward, rows) == [False] * 3 + [False, True, True] + [False] * 2
