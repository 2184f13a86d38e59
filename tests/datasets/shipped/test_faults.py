from foretrace.datasets.shipped import faults
from foretrace.datasets.shipped.columns import APART, FIT, SCORE, SUSPECT
from foretrace.datasets.shipped.gate import limits
from foretrace.datasets.shipped.gates import GATES, judge


def test_rows_of_known_faults(op_rows):
    ett = {"source": "estimate-train-time", "device": "GH200-120GB"}
    rows = op_rows(
        {"source": "vidur", "time_s": 19e-6}, {"source": "vidur", "time_s": 21e-6}, {"time_s": 1e-6},
        {"source": "llmservingsim", "device": "TPU-v6e", "op": "rope"},
        {"source": "llmservingsim", "device": "TPU-v6e", "op": "matmul"},
        {**ett, "op": "embedding", "bytes": 4e9, "time_s": 0.9e-3},  # 4,000 GB/s: 1 ms
        {**ett, "op": "embedding", "bytes": 4e9, "time_s": 1.1e-3},
        {**ett, "op": "optimizer_step"}, {**ett, "op": "optimizer_step", "device": "A100-SXM4-80GB"},
        {"device": "P4"}, {"device": "P4", "source": "other"},
    )  # fmt: skip
    seen = limits(rows)
    found = {
        index: gate.__name__
        for gate in (
            faults.below_clock_resolution, faults.tpu_vector_fused_away, faults.gh200_embedding_above_bandwidth,
            faults.gh200_optimizer_ignores_bytes, faults.p4_contradicts_itself,
        )
        for index, hit in enumerate(gate(seen)) if hit
    }  # fmt: skip
    assert found == {
        0: "below_clock_resolution", 3: "tpu_vector_fused_away", 5: "gh200_embedding_above_bandwidth",
        7: "gh200_optimizer_ignores_bytes", 9: "p4_contradicts_itself",
    }  # fmt: skip


def test_a_shape_of_the_test_split_is_fitted_on_no_device(op_rows):
    rows = op_rows({"m": 7, "split": "test", "device": "H100-SXM5-80GB"}, {"m": 7, "split": "train"}, {"m": 8})
    assert faults.own_test_split(rows).tolist() == [True, False, False]
    assert faults.shape_of_a_test_row(rows).tolist() == [False, True, False]


def test_the_gravest_part_wins_and_every_reason_is_named(op_rows):
    fast = {"flops": 1e14, "time_s": 1e-3}
    rows = op_rows(
        {"m": 3, "split": "test", "bytes": 1e3}, {**fast, "split": "test", "bytes": 1e12}, {"device": "P4", "m": 5}
    )
    counts = judge(rows, "ops")
    assert rows["part"].tolist() == [SCORE, SUSPECT, APART]
    assert rows["reason"].tolist()[1:] == ["above_compute_peak+above_memory_bandwidth", "p4_contradicts_itself"]
    assert rows["reason"][0].startswith("own_test_split")
    assert counts["above_compute_peak"] == counts["p4_contradicts_itself"] == 1
    assert counts["own_test_split"] == 2


def test_what_the_table_says_is_believed(op_rows, collective_rows):
    rows = op_rows({"split": "suspect"}, {"split": "none"})
    assert faults.told_by_the_table(rows).tolist() == [True, False]
    rows = collective_rows({"reason": "told_by_the_table"}, {})
    assert judge(rows, "collectives")["told_by_the_table"] == 1
    assert rows["part"][0] == SUSPECT and rows["part"][1] in (FIT, SCORE)


def test_every_gate_says_why():
    for table, gates in GATES.items():
        assert len({gate.name for gate in gates}) == len(gates), table
        for gate in gates:
            assert gate.part in (SUSPECT, APART, SCORE)
            assert len(gate.why) > 20 and gate.why.endswith(".")
