"""Tables outside of run folders: one file each of parquet, CSV or JSON, read and written by schema."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import ForetraceError, InputError, RunError, SchemaError, UsageError
from ..schemas import SCHEMA_VERSION, TABLES, schema_of, validate
from ..version import __version__
from .files import encode, read_json, reason, replacing, write_text
from .parquet import read_rows, write_rows
from .reader import check_version

FORMATS = ("csv", "json", "parquet")


def format_of(path: Path) -> str | None:
    """The format that a file's suffix names; None for another suffix."""
    suffix = path.suffix.lstrip(".").lower()
    return suffix if suffix in FORMATS else None


def table_of(path: Path, columns: list[str]) -> str:
    """The table that a file holds: by its name (`ops.csv`, `ops.rank0.0.parquet`), else by its columns.

    Raises `UsageError` when neither tells.
    """
    name = re.split(r"[.\-_]", path.name)[0]
    if name in TABLES:
        return name
    fitting = [
        table for table, schema in TABLES.items()
        if set(columns) <= set(schema.names) and {field.name for field in schema if not field.nullable} <= set(columns)
    ]  # fmt: skip
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError(f"{path}: cannot tell which table it holds; give --table with one of {', '.join(TABLES)}")


def read_table(path: str | Path, table: str | None = None) -> tuple[str, pa.Table]:
    """Read one file as (table, rows). Rows count from 0, after a CSV's header.

    Raises `InputError` when the file cannot be read, `SchemaError` naming row and column, `UsageError` when it is
    unknown which table it holds.
    """
    path = Path(path)
    kind = format_of(path)
    if kind is None:
        raise UsageError(f"{path}: cannot tell the format; name a file that ends in .{', .'.join(FORMATS)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file" if not path.exists() else f"{path}: is not a file")
    rows: Any
    if kind == "parquet":
        try:
            rows = read_rows(path)
        except OSError as error:
            raise InputError(f"{path}: cannot read: {reason(error)}") from error
        columns = rows.column_names
        table = table or table_of(path, columns)
    elif kind == "csv":
        columns, texts = _read_csv(path)
        table = table or table_of(path, columns)
        types = {field.name: str(field.type) for field in schema_of(table)}
        rows = [{name: _cell(text, types.get(name, "string")) for name, text in row.items()} for row in texts]
    else:
        document = read_json(path, what="table")
        check_version(document, path)
        rows = document.get("rows")
        table = table or document.get("table")
        if not isinstance(rows, list):
            raise SchemaError(f"{path}: expected an array of objects in 'rows', found {type(rows).__name__}")
        table = table or table_of(path, sorted({name for row in rows if isinstance(row, dict) for name in row}))
    return table, validate(table, rows, where=str(path))


def write_table(path: Path, table: str, rows: pa.Table, kind: type[ForetraceError] = RunError) -> None:
    """Write one table atomically in the format of the file's suffix."""
    if path.suffix == ".parquet":
        with replacing(path, kind) as temporary:
            write_rows(temporary, rows, table=table)
        return
    write_text(path, table_text(table, rows, path.suffix.lstrip(".")), kind)


def table_text(table: str, rows: pa.Table, form: str) -> str:
    """One table as CSV or JSON text; an empty CSV cell is not known."""
    if form == "json":
        document = {"schema_version": SCHEMA_VERSION, "foretrace": __version__, "table": table}
        return encode({**document, "rows": rows.to_pylist()}) + "\n"
    if form != "csv":
        raise UsageError(f"format {form!r} has no text; known are csv and json")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows.column_names)
    columns = [column.to_pylist() for column in rows.columns]
    writer.writerows(["" if cell is None else _text(cell) for cell in row] for row in zip(*columns, strict=True))
    return buffer.getvalue()


def _text(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else repr(cell) if isinstance(cell, float) else str(cell)


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise InputError(f"{path}: is not CSV: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    if not lines:
        raise InputError(f"{path}: is empty; expected a line of column names")
    header, *body = lines
    if len(set(header)) != len(header):
        raise SchemaError(f"{path}: a column name is there twice: {', '.join(header)}")
    rows = []
    for number, cells in enumerate(line for line in body if line):
        if len(cells) != len(header):
            raise SchemaError(f"{path}: row {number}: {len(cells)} cells, but the header names {len(header)} columns")
        rows.append(dict(zip(header, cells, strict=True)))
    return header, rows


def _cell(text: str, kind: str) -> Any:
    """A CSV cell as its column's type; what does not read as that stays a text, for `validate` to name."""
    if text == "":
        return None
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in ("int64", "double"):
        try:
            return int(text) if kind == "int64" else float(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                return text
    return text
