import math

import pandas as pd
import pyarrow as pa
import pytest
from foretrace.datasets.errors import SchemaError, UsageError
from foretrace.datasets.ops import TensorMeta, canonical
from foretrace.datasets.schemas import TABLES, empty, op_row, shape_text, validate
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("table", TABLES)
def test_no_rows_is_a_valid_table_with_all_columns(table):
    for rows in ([], pd.DataFrame(), empty(table)):
        assert validate(table, rows, where="here").schema.names == TABLES[table].names


@pytest.mark.parametrize("table", TABLES)
def test_no_schema_has_a_time_or_size_without_unit(table):
    unitless = {"spread", "count", "value", "core_share", "compute_slowdown", "flops"}
    for field in TABLES[table]:
        if pa.types.is_floating(field.type) and field.name not in unitless:
            assert field.name.endswith(("_s", "_bytes")) or field.name.startswith("bytes_")


def test_rows_as_dicts_frame_and_arrow_are_the_same(op_row):
    rows = [op_row(time_s=1e-6, threads=2), op_row(time_s=None, threads=None)]
    first = validate("ops", rows, where="here")
    assert validate("ops", first.to_pandas(), where="here").equals(first)
    assert validate("ops", first, where="here").equals(first)
    assert first.column("shape")[0].as_py() == '{"layout":"nn"}'
    assert first.column("threads").to_pylist() == [2, None]


def test_nan_is_empty_and_never_zero(op_row):
    checked = validate("ops", [op_row(time_s=math.nan)], where="here")
    assert checked.column("time_s").to_pylist() == [None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": -1}, "row 1, column 'm': is negative, found -1"),
        ({"m": 1.5}, "row 1, column 'm': expected int64, found float 1.5"),
        ({"m": "2"}, "row 1, column 'm': expected int64, found str '2'"),
        ({"m": True}, "row 1, column 'm': expected int64, found bool True"),
        ({"m": None}, "row 1, column 'm': is empty and may not be"),
        ({"m": 2**70}, "row 1, column 'm': expected int64, found int"),
        ({"name": 3}, "row 1, column 'name': expected string, found int 3"),
        ({"time_s": math.inf}, "row 1, column 'time_s': is infinite"),
        ({"time_s": -1e-6}, "row 1, column 'time_s': is negative"),
        ({"shape": "{"}, "row 1, column 'shape': expected the text of a JSON object, found '{'"),
        ({"shape": "[1]"}, "row 1, column 'shape': expected the text of a JSON object"),
        ({"direction": "up"}, "row 1, column 'direction': 'up' is none of fwd, bwd, opt"),
        ({"phase": "sleep"}, "row 1, column 'phase': 'sleep' is none of forward, backward, optimizer, other"),
        ({"speed": 1}, "unknown column 'speed'"),
    ],
)
def test_file_row_and_column_are_named(op_row, changes, message):
    with pytest.raises(SchemaError) as caught:
        validate("ops", [op_row(), op_row(**changes)], where="ops.rank0.0.parquet")
    assert message in str(caught.value)
    assert str(caught.value).startswith("ops.rank0.0.parquet: table ops")


def test_missing_column_and_wrong_arrow_types(op_row):
    row = op_row()
    del row["dtype"]
    with pytest.raises(SchemaError, match="column 'dtype' is missing"):
        validate("ops", [row], where="here")
    table = validate("ops", [op_row()], where="here")
    for name, values, found in (("m", ["2"], "string"), ("m", [True], "bool"), ("name", [1], "int64")):
        wrong = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
        with pytest.raises(SchemaError, match=f"column '{name}': expected .*, found {found}"):
            validate("ops", wrong, where="here")


def test_a_row_that_is_no_mapping():
    with pytest.raises(SchemaError, match="row 0: expected a mapping of columns, found int"):
        validate("ops", [3], where="here")


def test_an_event_ends_after_it_starts():
    row = {"rank": 0, "stream": "main", "start_s": 2.0, "end_s": 1.0, "name": "x", "category": "op"}
    with pytest.raises(SchemaError, match=r"row 0, column 'end_s': 1.0 is before start_s 2.0"):
        validate("events", [row], where="here")


def test_a_clock_may_start_anywhere():
    row = {"rank": 0, "channel": "power", "name": "package", "unit": "W", "time_s": -3.5, "value": -1.0}
    assert validate("samples", [row], where="here").num_rows == 1


def test_unknown_table():
    with pytest.raises(UsageError, match="table 'opz' is not known; known are ops"):
        validate("opz", [], where="here")


def test_op_row_holds_the_whole_key():
    op = canonical("aten.mm", [TensorMeta((2, 4), "fp32", (4, 1)), TensorMeta((4, 3), "fp32", (3, 1))],
                   [TensorMeta((2, 3), "fp32", (3, 1))])  # fmt: skip
    row = validate("ops", [op_row(op, time_s=1e-6)], where="here").to_pylist()[0]
    assert (row["m"], row["n"], row["k"], row["flops"]) == (2, 3, 4, 48.0)
    assert row["shape"] == shape_text({"layout": "nn"})
    assert row["time_s"] == 1e-6


finite = st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 2**62), finite | st.none(), st.text(max_size=5) | st.none()), max_size=20))
def test_whatever_is_valid_comes_back_exactly(values):
    base = {"op": "x", "name": "x", "direction": "fwd", "dtype": "fp32", "b": 0, "n": 0, "k": 0, "shape": "{}",
            "flops": 0.0, "bytes_read": 0.0, "bytes_written": 0.0}  # fmt: skip
    rows = [{**base, "m": m, "time_s": time_s, "kernel": kernel} for m, time_s, kernel in values]
    checked = validate("ops", rows, where="here")
    found = zip(*(checked.column(name).to_pylist() for name in ("m", "time_s", "kernel")), strict=True)
    assert list(found) == values
