import pytest
from foretrace.datasets.errors import InputError, SchemaError, UsageError
from foretrace.datasets.schemas import TABLES, empty, validate
from foretrace.datasets.store.tables import read_table, table_of, write_table


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_what_is_written_is_read_back(tmp_path, op_row, form):
    rows = validate("ops", [op_row(time_s=1 / 3, kernel='a "b",\nc'), op_row(threads=2)], where="here")
    path = tmp_path / f"ops.{form}"
    write_table(path, "ops", rows)
    assert read_table(path) == ("ops", rows)
    renamed = path.rename(tmp_path / f"mine.{form}")
    assert read_table(renamed) == ("ops", rows)  # told by the columns


def test_booleans_survive_csv(tmp_path, step_row):
    rows = validate("steps", [step_row(0, rank=0, skipped=True, profiled=False)], where="here")
    write_table(tmp_path / "steps.csv", "steps", rows)
    assert read_table(tmp_path / "steps.csv") == ("steps", rows)


def test_the_columns_of_each_table_tell_it(tmp_path):
    for name in TABLES:
        assert table_of(tmp_path / "mine.csv", empty(name).column_names) == name
    with pytest.raises(UsageError, match="give --table"):
        table_of(tmp_path / "mine.csv", ["a"])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", InputError, "is empty"),
        ("kind,kind\n", SchemaError, "a column name is there twice"),
        ("kind\nstep,1\n", SchemaError, "row 0: 2 cells, but the header names 1"),
        (
            "kind,time_s\nstep,1.0\nstep,fast\n",
            SchemaError,
            "row 1, column 'time_s': expected double, found str 'fast'",
        ),
        ("kind,ops\nstep,1.5\n", SchemaError, "row 0, column 'ops': expected int64, found float 1.5"),
        ("time_s\n1.0\n", SchemaError, "column 'kind' is missing"),
        ('kind\n"open\n', InputError, "is not CSV"),
    ],
)
def test_a_csv_is_named_with_row_and_column(tmp_path, text, error, message):
    path = tmp_path / "host.csv"
    path.write_text(text)
    with pytest.raises(error, match=message) as caught:
        read_table(path)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "ops.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"damaged, cut short or no parquet file \(16 bytes"):
        read_table(tmp_path / "ops.parquet")
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="cannot tell the format"):
        read_table(tmp_path / "ops.xlsx")
