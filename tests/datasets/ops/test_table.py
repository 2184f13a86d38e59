"""Op tables: columns in, arrays out; what no op can be is refused with its row."""

import numpy as np
import pandas as pd
import pytest
from foretrace.datasets.errors import SchemaError
from foretrace.datasets.ops.table import OpTable


def frame(**changes):
    row = {
        "op": "matmul", "device": "T4", "dtype": "fp16", "direction": "fwd", "b": 1, "m": 256, "n": 128, "k": 64,
        "shape": '{"n_meas": 3, "lat_min": 0.5, "heads": 8}', "latency_ms": 2.0,
    }  # fmt: skip
    return pd.DataFrame([{**row, **changes}])


def test_columns_become_arrays_and_absent_numbers_nan():
    table = OpTable.of_frame(frame(k=None), where="t")
    assert (len(table), table.m[0], table.n[0]) == (1, 256.0, 128.0)
    assert np.isnan(table.k[0]) and np.isnan(table.flops[0])
    assert table.source.texts()[0] == ""


def test_only_what_decides_the_time_is_read_from_shape():
    table = OpTable.of_frame(frame(), where="t")
    assert set(table.extras) == {"heads"}
    assert table.extra("heads")[0] == 8
    assert table.extra("kv_heads", 1.0)[0] == 1


def test_the_measurement_is_read_on_request_only():
    assert OpTable.of_frame(frame(), where="t").time_s is None
    assert OpTable.of_frame(frame(), where="t", times=True).time_s[0] == pytest.approx(0.002)
    with pytest.raises(SchemaError, match="no column latency_ms"):
        OpTable.of_frame(frame().drop(columns="latency_ms"), where="t", times=True)


@pytest.mark.parametrize("value", [0, -4, 1.5, 2.0**41, float("inf")])
def test_a_dim_that_no_tensor_has_is_named(value):
    good = frame()
    bad = pd.concat([good, frame(n=value)], ignore_index=True)
    with pytest.raises(SchemaError, match=r"t\.csv: row 1, column n: expected a whole number"):
        OpTable.of_frame(bad, where="t.csv")


def test_a_word_for_a_dim_is_named():
    with pytest.raises(SchemaError, match="row 0, column m: expected a number, found 'many'"):
        OpTable.of_frame(frame(m="many"), where="t")


@pytest.mark.parametrize("shape", ["{", "[1]", '{"heads": {}}'])
def test_a_damaged_shape_is_named(shape):
    with pytest.raises(SchemaError, match="row 0, column shape"):
        OpTable.of_frame(frame(shape=shape), where="t")


def test_words_of_a_shape_become_numbers():
    table = OpTable.of_frame(frame(shape='{"dist": "power_law_1.2", "transA": "T"}'), where="t")
    assert (table.extra("dist")[0], table.extra("transA")[0]) == (1.2, 1.0)


def test_taking_rows_keeps_columns_together():
    whole = pd.concat([frame(m=1 + i, device=name) for i, name in enumerate("abc")], ignore_index=True)
    table = OpTable.of_frame(whole, where="t", times=True).take(np.array([2, 0]))
    assert list(table.m) == [3, 1]
    assert list(table.device.texts()) == ["c", "a"]
    assert len(table.time_s) == 2
