"""Packed files: dictionary-encoded parquet in row groups of one device and one part each, and a hash of content.

The hash is over values, not over the file: the same rows hash alike whatever the version of the parquet writer.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..schemas import SCHEMA_VERSION
from ..store.files import replacing
from ..version import __version__
from .columns import stored

COMPRESSION_LEVEL = 19
_GROUP = ["device", "part"]


def arrow(rows: pd.DataFrame, table: str) -> pa.Table:
    """Rows in the columns of their file, sorted by all columns, device and part first."""
    schema = stored(table)
    if table == "ops":
        rows = rows.assign(flops_per_volume=rows["flops"] / volume(rows), bytes_per_face=rows["bytes"] / faces(rows))
    arrays = [_array(rows[field.name], field.type) for field in schema]
    made = pa.Table.from_arrays(arrays, schema=schema)
    order = [*_GROUP, *(name for name in schema.names if name not in _GROUP)]
    return made.take(pc.sort_indices(made, sort_keys=[(name, "ascending") for name in order])).combine_chunks()


def volume(rows: pd.DataFrame) -> pd.Series:
    """b m n k of a product, b m n where there is no k, 1 where m or n is not given."""
    b, m, n, k = _dims(rows)
    return (b * m * n * k.fillna(1.0)).fillna(1.0)


def faces(rows: pd.DataFrame) -> pd.Series:
    """Elements of both operands and the result of a product, b m n where there is no k, 1 where m or n is not given."""
    b, m, n, k = _dims(rows)
    return (b * (m * k + k * n + m * n)).fillna(b * m * n).fillna(1.0)


def _dims(rows: pd.DataFrame) -> list[pd.Series]:
    b, m, n, k = (rows[name].astype("Float64").astype("float64") for name in ("b", "m", "n", "k"))
    return [b.fillna(1.0), m, n, k]


def _array(values: pd.Series, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array(values.astype(object), type=kind)
    return pa.Array.from_pandas(values).cast(kind)


def content_hash(rows: pa.Table) -> str:
    """SHA-256 over columns, types and values of a sorted table, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in rows.column_names:
        column = rows.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        digest.update(f"{name}:{column.type}:{len(column)};".encode())
        digest.update(np.packbits(np.asarray(column.is_valid())).tobytes())
        if pa.types.is_string(column.type):
            texts = column.fill_null("")
            digest.update(np.asarray(pc.binary_length(texts), dtype="<i8").tobytes())
            digest.update("".join(texts.to_pylist()).encode())
        else:
            values = np.asarray(column.fill_null(0))
            digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def row_groups(rows: pa.Table) -> list[dict[str, Any]]:
    """Device, part and number of rows of each row group, in their order in the file."""
    pairs = zip(rows.column("device").to_pylist(), rows.column("part").to_pylist(), strict=True)
    groups: list[dict[str, Any]] = []
    for device, part in pairs:
        if not groups or (groups[-1]["device"], groups[-1]["part"]) != (device, part):
            groups.append({"device": device, "part": part, "rows": 0})
        groups[-1]["rows"] += 1
    return groups


def write(path: Path, rows: pa.Table, *, table: str, licence: str) -> None:
    """Write one packed file atomically. Raises `RunError` when it cannot be written."""
    import pyarrow.parquet as parquet

    known = {"schema_version": str(SCHEMA_VERSION), "foretrace": __version__, "table": table, "licence": licence}
    rows = rows.replace_schema_metadata(known)
    floats = [name for name in rows.column_names if name == "time_s"]  # nearly every value once: nothing to look up
    with (
        replacing(path) as temporary,
        parquet.ParquetWriter(
            temporary, rows.schema, compression="zstd", compression_level=COMPRESSION_LEVEL,
            use_dictionary=[name for name in rows.column_names if name not in floats],
            column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"), write_statistics=False,
        ) as writer,
    ):  # fmt: skip
        start = 0
        for group in row_groups(rows):
            writer.write_table(rows.slice(start, group["rows"]), row_group_size=group["rows"])
            start += group["rows"]
