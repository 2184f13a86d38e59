"""FLOPs and bytes of rows that state none: hand arithmetic, and the shipped tables' own columns."""

import json

import numpy as np
import pandas as pd
import pytest
from foretrace.datasets import shipped
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.work import with_work


def table(op: str, *, shape: dict | None = None, dtype: str = "bf16", direction: str = "fwd", **dims: float) -> OpTable:
    row = {"op": op, "device": "A40", "dtype": dtype, "direction": direction, "shape": json.dumps(shape or {})}
    return OpTable.of_frame(pd.DataFrame([{**row, **dims}]), where="test")


@pytest.mark.parametrize(
    ("row", "flops", "moved_bytes"),
    [
        (table("matmul", m=2, n=3, k=4), 48, 2 * (8 + 12 + 6)),
        (table("elementwise.add", m=5, n=7, dtype="fp32"), 35, 3 * 35 * 4),
        (table("softmax", m=5, n=7, direction="bwd"), 2 * 5 * 35, 2 * 2 * 35 * 2),
        # 4 queries see 1, 2, 3 and 4 keys: 10 pairs of head dim 8, two products of 2 FLOPs each.
        (table("attention_fwd", b=1, m=4, n=4, k=8, shape={"heads": 2, "causal": True}), 4 * 2 * 10 * 8, 2 * 256),
        # A 3 x 3 filter with pad 1 over 8 x 8 pixels keeps them.
        (
            table("conv2d", shape={"n": 1, "c": 2, "h": 8, "w": 8, "k_out": 3, "r": 3, "s": 3, "pad": 1}),
            2 * 64 * 3 * 2 * 9,
            2 * (128 + 54 + 192),
        ),
        (table("optimizer_step", m=10, direction="opt"), 120, 200),
    ],
)
def test_work_by_hand(row, flops, moved_bytes):
    done = with_work(row)
    assert done.flops[0] == flops
    assert done.bytes[0] == moved_bytes


def test_what_a_row_states_is_kept_and_unknown_ops_stay_unknown():
    stated = table("matmul", m=2, n=3, k=4, flops=1.0, bytes=2.0)
    assert with_work(stated) is stated
    unknown = with_work(table("layer.unheard_of", m=2, n=3))
    assert np.isnan(unknown.flops[0])
    assert np.isnan(unknown.bytes[0])


@pytest.mark.parametrize("source", ["neusight", "estimate-train-time"])
def test_conventions_are_those_of_the_shipped_tables(source):
    frame = shipped.ops(sources=[source], devices=["A100-PCIE-40GB", "A100-SXM4-80GB"])
    frame = frame[frame.op.isin(["bmm", "softmax", "layernorm", "elementwise.add", "elementwise.gelu"])]
    frame = frame[frame.direction == "fwd"].groupby("op", observed=True).head(5)
    stated = OpTable.of_frame(frame, where=source)
    bare = OpTable.of_frame(frame.drop(columns=["flops", "bytes"]), where=source)
    np.testing.assert_allclose(with_work(bare).bytes, stated.bytes, rtol=1e-6)
    assert len(stated) >= 10
