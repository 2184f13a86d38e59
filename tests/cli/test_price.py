"""`foretrace price`: one op, a table, what to time; and what it says to bad input."""

import json

import pandas as pd
import pytest

MATMUL = ("price", "op", "matmul", "--m", "4096", "--n", "4096", "--k", "4096", "--device", "h100-sxm")
ROW = {
    "op": "matmul", "device": "A100-SXM4-80GB", "dtype": "bf16", "direction": "fwd", "b": 1, "m": 4096, "n": 4096,
    "k": 4096, "shape": "{}", "flops": None, "bytes": None, "latency_ms": 0.55,
}  # fmt: skip


@pytest.fixture
def ops(tmp_path):
    """A table of ten matmuls and a vector op."""
    rows = [{**ROW, "m": 512 * (1 + index)} for index in range(10)]
    vector = {"op": "elementwise.add", "m": 4096, "n": 1024, "k": None, "flops": 4096 * 1024, "bytes": 2.5e7}
    path = tmp_path / "ops.csv"
    pd.DataFrame([*rows, {**ROW, **vector, "latency_ms": 0.02}]).to_csv(path, index=False)
    return path


def test_one_op(foretrace):
    done = foretrace(*MATMUL, "--json")
    assert done.returncode == 0, done.stderr
    (price,) = json.loads(done.stdout)["prices"]
    # 2 x 4096³ FLOPs at 989.4 TFLOP/s are 0.139 ms.
    assert price["device"] == price["nearest_data"] == "H100-SXM5-80GB"
    assert price["roofline_s"] == pytest.approx(2 * 4096**3 / 989.4e12)
    assert price["roofline_s"] < price["time_s"] < 3 * price["roofline_s"]
    assert price["low_s"] < price["time_s"] < price["high_s"]


def test_one_op_on_every_device(foretrace):
    done = foretrace(*MATMUL[:-1], "all", "--json")
    assert done.returncode == 0, done.stderr
    prices = json.loads(done.stdout)["prices"]
    assert len(prices) > 60
    assert all(price["time_s"] > 0 for price in prices)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("--m", "0"), "--m 0: expected a whole number from 1"),
        (("--m", "-4"), "--m -4: expected a whole number"),
        (("--m", "1.5"), "--m 1.5: expected a whole number"),
        (("--m", "1e30"), "--m 1e30: expected a whole number"),
        (("--m", "nan"), "--m nan: expected a whole number"),
        (("--m", "many"), "--m many: expected a whole number"),
        (("--dtype", "fp12"), "--dtype fp12: not known; known are fp32"),
        (("--device", "gpu-of-dreams"), "gpu-of-dreams"),
        (("--direction", "sideways"), "--direction sideways: not known"),
        (("--set", "colour=3"), "not a field of a shape"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(foretrace, changes, says):
    done = foretrace(*MATMUL, *changes)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_an_unknown_op_names_the_known_ones(foretrace):
    done = foretrace("price", "op", "matmull", "--device", "t4")
    assert done.returncode == 2
    assert "'matmull' is not known; known are matmul" in done.stderr


def test_a_missing_dim_is_named(foretrace):
    done = foretrace("price", "op", "matmul", "--m", "8", "--n", "8", "--device", "t4")
    assert done.returncode == 2
    assert "k is missing" in done.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_priced(foretrace, ops, tmp_path, suffix):
    output = tmp_path / f"priced.{suffix}"
    done = foretrace("price", "ops", ops, "-o", output, "--score")
    assert done.returncode == 0, done.stderr
    assert "elementwise.add" in done.stdout
    priced = pd.read_csv(output) if suffix == "csv" else pd.read_parquet(output)
    assert len(priced) == 11
    assert (priced.predicted_ms > 0).all()
    assert (priced.low_ms <= priced.predicted_ms).all() and (priced.predicted_ms <= priced.high_ms).all()
    assert set(priced.source) <= {"measured", "interpolated", "learned", "analytic"}
    assert priced.in_range.dtype == bool


def test_times_of_the_table_do_not_change_its_prices(foretrace, ops, tmp_path):
    other = tmp_path / "other.csv"
    pd.read_csv(ops).drop(columns="latency_ms").to_csv(other, index=False)
    for path, name in ((ops, "a.csv"), (other, "b.csv")):
        assert foretrace("price", "ops", path, "-o", name).returncode == 0
    a, b = (pd.read_csv(tmp_path / name).predicted_ms for name in ("a.csv", "b.csv"))
    assert a.equals(b)


def test_another_device_for_the_whole_table(foretrace, ops, tmp_path):
    assert foretrace("price", "ops", ops, "--device", "mi300x", "-o", "out.csv").returncode == 0
    assert not pd.read_csv(tmp_path / "out.csv").in_range.any()


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"m": 0}, 3, "column m: expected a whole number"),
        ({"m": -3}, 3, "column m"),
        ({"device": "no-such-part"}, 2, "no-such-part"),
        ({"shape": "{"}, 3, "column shape"),
    ],
)
def test_a_bad_row_is_named(foretrace, tmp_path, change, code, says):
    pd.DataFrame([ROW, {**ROW, **change}]).to_csv(tmp_path / "bad.csv", index=False)
    done = foretrace("price", "ops", "bad.csv", "-o", "out.csv")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.csv").exists()


def test_a_table_that_is_not_there(foretrace):
    done = foretrace("price", "ops", "nowhere.parquet", "-o", "out.csv")
    assert done.returncode == 3
    assert "nowhere.parquet" in done.stderr


def test_nowhere_to_put_the_prices(foretrace, ops):
    assert foretrace("price", "ops", ops).returncode == 2


def test_shapes_worth_timing_then_calibrated_prices(foretrace, ops, tmp_path):
    done = foretrace("price", "plan-timings", ops, "--count", "4", "--device", "l40s", "-o", "timings.csv")
    assert done.returncode == 0, done.stderr
    plan = pd.read_csv(tmp_path / "timings.csv")
    assert (plan.op == "matmul").sum() == 4
    assert plan.latency_ms.isna().all()
    foretrace("price", "ops", ops, "--device", "l40s", "-o", "before.csv")
    before = pd.read_csv(tmp_path / "before.csv")
    timed = plan.drop(columns="latency_ms").merge(before[["op", "m", "n", "predicted_ms"]], on=["op", "m", "n"])
    timed.rename(columns={"predicted_ms": "latency_ms"}).assign(latency_ms=lambda t: 1.5 * t.latency_ms).to_csv(
        tmp_path / "timings.csv", index=False
    )
    done = foretrace("price", "ops", ops, "--device", "l40s", "--calibrate", "timings.csv", "-o", "after.csv")
    assert done.returncode == 0, done.stderr
    ratio = pd.read_csv(tmp_path / "after.csv").predicted_ms / before.predicted_ms
    assert (ratio[:10] > 1.35).all() and (ratio[:10] < 1.65).all()
