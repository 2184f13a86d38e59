"""Rows of raw and of packed tables, one at a time, and a tiny raw folder made of them."""

import pandas as pd
import pytest

OP = {
    "source": "neusight", "device": "T4", "part": "", "reason": "", "op": "linear", "dtype": "fp32", "direction": "fwd",
    "split": "none", "framework": "torch", "kernel": "gemm", "shape": "{}", "b": 1, "m": 512, "n": 512, "k": 512,
    "flops": 2.0 * 512**3, "bytes": 3 * 4.0 * 512**2, "time_s": 1e-4, "spread": None, "count": 1,
    "stat": "mean",
}  # fmt: skip
COLLECTIVE = {
    "source": "aiconfigurator-nccl", "device": "A100-SXM4-80GB", "part": "", "reason": "",
    "interconnect": "NVLink3+NVSwitch", "backend": "nccl", "collective": "all_reduce", "dtype": "half", "ranks": 8,
    "nodes": 1, "gpus_per_node": 8, "bytes": 2**30, "time_s": 1e-2, "spread": None, "count": 1,
    "stat": "mean", "notes": "",
}  # fmt: skip


def _frame(default, rows):
    frame = pd.DataFrame([{**default, **row} for row in rows])
    for name in ("b", "m", "n", "k", "ranks", "nodes", "gpus_per_node", "bytes"):
        if name in frame and not (name == "bytes" and default is OP):
            frame[name] = frame[name].astype("Int64")
    frame["spread"] = frame["spread"].astype(float)
    return frame


@pytest.fixture
def op_rows():
    """Packed op rows: one for each dict of changes. A linear of 512 x 512 x 512 on a T4 that takes 0.1 ms."""
    return lambda *rows: _frame(OP, rows)


@pytest.fixture
def collective_rows():
    """Packed collective rows: one for each dict of changes. An all-reduce of 1 GiB over 8 A100 that takes 10 ms."""
    return lambda *rows: _frame(COLLECTIVE, rows)


def raw_op(**changes):
    """One row in the columns of the raw op tables."""
    row = {name: value for name, value in OP.items() if name not in ("part", "reason", "time_s", "spread")}
    row.pop("count")
    return {**row, "shape": None, "latency_ms": 0.1, **changes}


def raw_collective(**changes):
    """One row in the columns of the raw collective tables."""
    row = {name: value for name, value in COLLECTIVE.items() if name not in ("part", "reason", "spread")}
    row.pop("count")
    seconds = row.pop("time_s")
    return {**row, "time_us": seconds * 1e6, "algbw_gbps": None, "busbw_gbps": None, **changes}


@pytest.fixture
def raw(tmp_path):
    """A raw folder of three sources and a table that no source is known for.

    neusight: a linear twice (0.1 and 0.3 ms), a copy of the first, a row without a time, a row of a device that does
    not exist, one test row, a P4 row, and one that would run at four times the peak. estimate-train-time: an attention
    that says causal. stas00: one all-reduce, share-alike.
    """
    folder = tmp_path / "raw"
    (folder / "ops").mkdir(parents=True)
    (folder / "collectives").mkdir()
    # T4: 8.1 TFLOP/s in fp32. 2 x 4096 x 4096 x 4096 FLOP = 0.137 TFLOP are 17 ms at the peak, here 4.24 ms.
    fast = {"m": 4096, "n": 4096, "k": 4096, "flops": 2.0 * 4096**3, "bytes": 3 * 4.0 * 4096**2, "latency_ms": 4.24}
    rows = [
        raw_op(), raw_op(latency_ms=0.3), raw_op(), raw_op(m=64, latency_ms=None), raw_op(device="T4000"),
        raw_op(m=1024, split="test"), raw_op(device="P4"), raw_op(**fast),
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "ops" / "neusight.parquet")
    attention = {
        "source": "estimate-train-time", "device": "A100-SXM4-80GB", "op": "attention_fwd", "dtype": "fp16", "b": 8,
        "m": 2048, "n": 2048, "k": 128, "flops": 1e12, "bytes": 1e8, "latency_ms": 10.0, "kernel": "flash_atten",
        "shape": '{"heads": 4, "causal": true, "n_meas": 3, "lat_min": 9.0, "lat_max": 12.0}',
    }  # fmt: skip
    pd.DataFrame([raw_op(**attention)]).to_parquet(folder / "ops" / "estimate_train_time.parquet")
    pd.DataFrame([raw_collective(source="stas00-ml-engineering")]).to_csv(
        folder / "collectives" / "stas00_ml_engineering_CC-BY-SA.csv", index=False
    )
    (folder / "ops" / "found_somewhere.csv").write_text("a,b\n1,2\n")
    return folder
