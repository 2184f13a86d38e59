"""Rows in parquet files: how we write them and how a damaged one is told from a readable one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ..errors import InputError
from ..schemas import SCHEMA_VERSION
from ..version import __version__


def write_rows(path: Path, rows: pa.Table, **metadata: str) -> None:
    """Write one file, with our version and `metadata` in it. Not atomic by itself; raises `OSError`."""
    import pyarrow.parquet as parquet

    known = {"schema_version": str(SCHEMA_VERSION), "foretrace": __version__, **metadata}
    with path.open("wb") as file:
        parquet.write_table(rows.replace_schema_metadata(known), file, compression="zstd")


def read_rows(path: Path) -> pa.Table:
    """All rows as stored. Raises `InputError` when the content is damaged, `OSError` when the file cannot be read."""
    import pyarrow.parquet as parquet

    try:
        with path.open("rb") as file:
            # ParquetFile, not read_table: the latter takes folder names such as "k=v" for partition columns.
            return parquet.ParquetFile(file).read()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().splitlines()[0].rstrip(".")
        size = path.stat().st_size
        raise InputError(f"{path}: is damaged, cut short or no parquet file ({size} bytes; {reason})") from error
