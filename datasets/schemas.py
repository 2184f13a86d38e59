"""Row schemas of all tables, and the one function that checks rows against them.

A column that may be empty says so by `nullable`; an empty cell means "not known", never 0. NaN reads as empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from .errors import SchemaError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from .ops import Op

SCHEMA_VERSION = 1
"""Written into every file; a reader gives defaults to columns that came later and refuses files of a later version."""

_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


def _schema(*columns: str) -> pa.Schema:
    """`name:type` for a required column, `name:type?` for one that may be empty."""
    fields = []
    for column in columns:
        name, _, kind = column.partition(":")
        fields.append(pa.field(name, _TYPES[kind.rstrip("?")], nullable=kind.endswith("?")))
    return pa.schema(fields)


OPS = _schema(
    "op:str", "name:str", "direction:str", "dtype:str",
    "b:int", "m:int", "n:int", "k:int",
    "shape:str",            # JSON object, sorted keys
    "flops:float", "bytes_read:float", "bytes_written:float",
    "phase:str?",           # forward | backward | optimizer | other
    "device:str?", "threads:int?",
    "processes:int?",       # how many processes ran the same op at the same time; 1 is alone
    "cache:str?",           # warm | cold
    "time_s:float?",        # median per call
    "spread:float?",        # half interquartile range / median
    "count:int?",           # calls per step, or repetitions measured
    "rank:int?", "kernel:str?", "software:str?", "source:str?",
)  # fmt: skip

COLLECTIVES = _schema(
    "kind:str",
    "bytes:int",            # full buffer in the nccl-tests sense; the message for send_recv
    "ranks:int", "ranks_per_node:int?", "backend:str", "link:str?", "dtype:str?",
    "time_s:float?", "spread:float?", "count:int?",
    "compute:str?",         # idle | busy: were the compute threads of the ranks busy?
    "core_share:float?",    # CPU cores used per rank while it runs: process CPU time / wall
    "compute_slowdown:float?",  # time of a fixed compute block during the collective / alone
    "rank:int?", "source:str?",
)  # fmt: skip

HOST = _schema(
    "kind:str", "workload:str?", "phase:str?", "ops:int?", "views:int?", "time_s:float?", "spread:float?",
    "source:str?",
)  # fmt: skip

EVENTS = _schema(
    "rank:int", "step:int?", "stream:str", "start_s:float", "end_s:float", "name:str",
    "category:str",         # op | collective | host | memory | annotation
    "row:int?",             # index into the ops or collectives table of that rank
    "parent:int?", "group:str?", "sequence:int?",
)  # fmt: skip

STEPS = _schema(
    "rank:int", "step:int", "start_s:float", "end_s:float", "time_s:float", "skipped:bool",
    "profiled:bool",        # inside the active window
    "hook_s:float?",        # our own time in this step
)  # fmt: skip

SAMPLES = _schema("rank:int", "channel:str", "name:str", "unit:str", "time_s:float", "value:float?")

MEMORY = _schema("rank:int", "category:str", "peak_bytes:int?", "reason:str?")

TABLES: dict[str, pa.Schema] = {
    "ops": OPS, "collectives": COLLECTIVES, "host": HOST, "events": EVENTS, "steps": STEPS, "samples": SAMPLES,
    "memory": MEMORY,
}  # fmt: skip

_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "ops": {
        "direction": ("fwd", "bwd", "opt"),
        "phase": ("forward", "backward", "optimizer", "other"),
        "cache": ("warm", "cold"),
    },
    "collectives": {
        "kind": ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "barrier"),
        "compute": ("idle", "busy"),
    },
    "events": {"category": ("op", "collective", "host", "memory", "annotation")},
    "memory": {
        "category": ("total", "parameters", "gradients", "optimizer", "activations", "other", "process"),
    },
}

# Clocks may start anywhere, so a point in time can be negative; a duration or a size cannot.
_ANY_SIGN = {"start_s", "end_s", "value", "parent"}
_ANY_SIGN_TIME = {"samples"}


def validate(table: str, rows: pa.Table | pd.DataFrame | Iterable[Mapping[str, Any]], *, where: str) -> pa.Table:
    """`rows` as an Arrow table with exactly the columns of `TABLES[table]`, in order.

    Nullable columns that are absent come as empty; NaN becomes empty; a dict in `shape` becomes its JSON text. `where`
    names the file or caller in messages. Raises `SchemaError` with file, row (from 0), column and what was found.
    """
    schema = schema_of(table)
    raw = _arrow(rows, schema, table, where)
    if unknown := [name for name in raw.column_names if name not in schema.names]:
        raise SchemaError(
            f"{where}: table {table}: unknown column {unknown[0]!r}; the schema has {', '.join(schema.names)}"
        )
    columns = []
    for field in schema:
        if field.name in raw.column_names:
            columns.append(_column(raw.column(field.name), field, table, where))
        elif field.nullable or not raw.num_rows:
            columns.append(pa.chunked_array([pa.nulls(raw.num_rows, field.type)]))
        else:
            raise SchemaError(f"{where}: table {table}: column {field.name!r} is missing and may not be empty; add it")
    result = pa.Table.from_arrays(columns, schema=schema)
    for name, words in _WORDS.get(table, {}).items():
        _check_words(result.column(name), name, words, table, where)
    if table == "ops":
        _check_shapes(result.column("shape"), where)
    if table in ("events", "steps"):
        _first(
            pc.less(result.column("end_s"), result.column("start_s")),
            lambda row: SchemaError(
                f"{where}: table {table}, row {row}, column 'end_s': {result.column('end_s')[row].as_py()} is before "
                f"start_s {result.column('start_s')[row].as_py()}"
            ),
        )
    return result


def schema_of(table: str) -> pa.Schema:
    """The schema of a table by name. Raises `UsageError` with the known names."""
    if table not in TABLES:
        raise UsageError(f"table {table!r} is not known; known are {', '.join(TABLES)}")
    return TABLES[table]


def empty(table: str) -> pa.Table:
    """A table with all columns and no rows."""
    return schema_of(table).empty_table()


def op_row(op: Op, **measured: Any) -> dict[str, Any]:
    """A row of OPS: the key `op`, and whatever is known beside it (`time_s=`, `count=`, `threads=` ...)."""
    return {
        "op": op.op, "name": op.name, "direction": op.direction, "dtype": op.dtype,
        "b": op.b, "m": op.m, "n": op.n, "k": op.k, "shape": shape_text(dict(op.shape)),
        "flops": op.flops, "bytes_read": op.bytes_read, "bytes_written": op.bytes_written, **measured,
    }  # fmt: skip


def shape_text(shape: Mapping[str, Any]) -> str:
    """The `shape` column of a mapping: a JSON object with sorted keys."""
    return json.dumps(dict(shape), sort_keys=True, separators=(",", ":"))


def _arrow(rows: Any, schema: pa.Schema, table: str, where: str) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):  # a DataFrame, without importing pandas
        columns = {str(name): rows[name].tolist() for name in rows.columns}
        length = len(rows)
    else:
        rows = list(rows)
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise SchemaError(
                    f"{where}: table {table}, row {index}: expected a mapping of columns, found {type(row).__name__}"
                )
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        length = len(rows)
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name not in schema.names:
            raise SchemaError(
                f"{where}: table {table}: unknown column {name!r}; the schema has {', '.join(schema.names)}"
            )
        arrays[name] = _array(values, schema.field(name), table, where)
    if not arrays:
        return schema.empty_table() if not length else pa.table({})
    return pa.table(arrays)


def _array(values: list[Any], field: pa.Field, table: str, where: str) -> pa.Array:
    """Python values as one column; slow only when something is wrong and the row has to be named."""
    if field.name == "shape":
        values = [shape_text(value) if isinstance(value, Mapping) else value for value in values]
    # Arrow would cut 1.5 to 1 without a word.
    whole = not pa.types.is_integer(field.type) or not any(isinstance(value, float) for value in values)
    try:
        if whole:
            return pa.array(values, type=field.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        pass
    cleaned = [_value(value, field, row, table, where) for row, value in enumerate(values)]
    return pa.array(cleaned, type=field.type, from_pandas=True)


def _value(value: Any, field: pa.Field, row: int, table: str, where: str) -> Any:
    """One cell as its column's type, or SchemaError. A whole float is an int; numpy scalars are their values."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType":
        return None
    kind = str(field.type)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "int64" and number and math.isfinite(value) and value == int(value) and abs(value) < 2**63:
        return int(value)
    if kind == "double" and number:
        return float(value)
    if (kind == "string" and isinstance(value, str)) or (kind == "bool" and isinstance(value, bool)):
        return value
    raise SchemaError(
        f"{where}: table {table}, row {row}, column {field.name!r}: expected {kind}, found {type(value).__name__} "
        f"{value!r}"
    )


def _column(column: pa.ChunkedArray, field: pa.Field, table: str, where: str) -> pa.ChunkedArray:
    """One column cast to its type, NaN emptied, and checked for emptiness, infinity and sign."""

    def wrong(row: int, found: Any) -> SchemaError:
        return SchemaError(f"{where}: table {table}, row {row}, column {field.name!r}: {found}")

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        # Empty first: an int column that went through pandas holds NaN where it was empty.
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if column.type != field.type:
        if not _castable(column.type, field.type):
            raise SchemaError(
                f"{where}: table {table}, column {field.name!r}: expected {field.type}, found {column.type}"
            )
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = [_value(value, field, row, table, where) for row, value in enumerate(column.to_pylist())]
            column = pa.chunked_array([pa.array(values, type=field.type)])
    if not field.nullable:
        _first(pc.is_null(column), lambda row: wrong(row, "is empty and may not be; give a value"))
    if pa.types.is_floating(column.type):
        _first(pc.is_inf(column), lambda row: wrong(row, "is infinite; leave what is not known empty"))
    signed = field.name in _ANY_SIGN or (field.name == "time_s" and table in _ANY_SIGN_TIME)
    if not signed and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        _first(pc.less(column, 0), lambda row: wrong(row, f"is negative, found {column[row].as_py()}"))
    return column


def _castable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning. Arrow alone would read "12" and true as numbers and print 12 as a text."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_string(wanted):
        return pa.types.is_large_string(found) or pa.types.is_string_view(found)
    number = pa.types.is_integer(found) or pa.types.is_floating(found)
    return number and not pa.types.is_boolean(wanted)


def _first(mask: pa.ChunkedArray, error: Any) -> None:
    """Raise `error(row)` for the first true row of the mask, if any."""
    row = pc.index(mask, pa.scalar(True)).as_py()
    if row >= 0:
        raise error(row)


def _check_words(column: pa.ChunkedArray, name: str, words: tuple[str, ...], table: str, where: str) -> None:
    known = pc.or_kleene(pc.is_in(column, pa.array(words, pa.string())), pc.is_null(column))
    _first(
        pc.invert(known),
        lambda row: SchemaError(
            f"{where}: table {table}, row {row}, column {name!r}: {column[row].as_py()!r} is none of {', '.join(words)}"
        ),
    )


def _check_shapes(column: pa.ChunkedArray, where: str) -> None:
    for text in pc.unique(column).to_pylist():
        try:
            sound = isinstance(json.loads(text), dict)
        except ValueError:
            sound = False
        if not sound:
            row = pc.index(column, pa.scalar(text)).as_py()
            raise SchemaError(
                f"{where}: table ops, row {row}, column 'shape': expected the text of a JSON object, found {text!r}"
            )
