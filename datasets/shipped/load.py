"""Reading the packed tables: only the row groups and columns that are asked for, texts as categories."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InputError, UsageError
from ..store.files import read_json
from .columns import FIT, PARTS, PER_ELEMENT, TABLES
from .pack import faces, volume

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "data"
"""Where the packed tables lie."""


@lru_cache(maxsize=4)
def provenance(folder: Path = FOLDER) -> dict[str, Any]:
    """What is shipped: content_hash, sources (one entry each), gates. Raises `InputError` when it is not there."""
    return read_json(folder / "provenance.json", what="provenance of the shipped measurements")


def ops(
    *,
    sources: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    parts: Sequence[str] = (FIT,),
    columns: Sequence[str] | None = None,
    folder: Path = FOLDER,
) -> pd.DataFrame:
    """Measured ops in the columns of `columns.OPS`, or those named by `columns`.

    Texts are categories, whole numbers nullable integers, times float32 seconds; `shape` is JSON text. Without
    `sources` all but share-alike ones, without `devices` all; `parts` is `fit` unless more is asked for. Raises
    `UsageError` for an unknown source, part or column (naming the known ones), `InputError` when a file is damaged.
    """
    return read("ops", sources=sources, devices=devices, parts=parts, columns=columns, folder=folder)


def collectives(
    *,
    sources: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    parts: Sequence[str] = (FIT,),
    columns: Sequence[str] | None = None,
    folder: Path = FOLDER,
) -> pd.DataFrame:
    """Measured collectives and point-to-point messages in the columns of `columns.COLLECTIVES`; as `ops`."""
    return read("collectives", sources=sources, devices=devices, parts=parts, columns=columns, folder=folder)


def steps(*, folder: Path = FOLDER) -> pd.DataFrame:
    """Measured steps of whole models, all of them for scoring, in the columns of `columns.STEPS`."""
    return read("steps", parts=PARTS, folder=folder)


def model_ops(*, folder: Path = FOLDER) -> pd.DataFrame:
    """Measured ops inside those models, all of them for scoring, in the columns of `columns.MODEL_OPS`."""
    return read("model_ops", parts=PARTS, folder=folder)


def read(
    table: str,
    *,
    sources: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    parts: Sequence[str] = (FIT,),
    columns: Sequence[str] | None = None,
    folder: Path = FOLDER,
) -> pd.DataFrame:
    """Rows of one table; see `ops`."""
    import pandas as pd
    import pyarrow.parquet as parquet

    schema = TABLES[table]
    entries = [entry for entry in provenance(folder)["sources"] if entry["table"] == table]
    _check("source", sources, [entry["name"] for entry in entries])
    _check("part", parts, PARTS)
    _check("column", columns, schema.names)
    names = list(schema.names if columns is None else columns)
    wanted = _stored(names) if table == "ops" else names
    texts = [name for name in names if pa.types.is_string(schema.field(name).type)]
    found = []
    for entry in entries:
        if entry["name"] not in sources if sources is not None else entry["share_alike"]:
            continue
        groups = [
            index
            for index, group in enumerate(entry["row_groups"])
            if group["part"] in parts and (devices is None or group["device"] in devices)
        ]
        if not groups:
            continue
        path = folder / entry["file"]
        try:
            with parquet.ParquetFile(path, read_dictionary=texts) as file:
                found.append(file.read_row_groups(groups, columns=wanted).replace_schema_metadata(None))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: cannot read shipped rows: {error}; install foretrace again") from error
    kinds = {pa.int64(): pd.Int64Dtype()}
    if not found:
        return schema.empty_table().select(names).to_pandas(types_mapper=kinds.get)
    rows = pa.concat_tables(found).unify_dictionaries().to_pandas(types_mapper=kinds.get)
    if "flops" in names:
        rows["flops"] = rows["flops_per_volume"] * volume(rows)
    if "bytes" in names and table == "ops":
        rows["bytes"] = rows["bytes_per_face"] * faces(rows)
    return rows[names]


def _stored(names: Sequence[str]) -> list[str]:
    """Columns of the file that give `names`: FLOPs and bytes lie there per element of the dims."""
    dims = ("b", "m", "n", "k") if set(names) & set(PER_ELEMENT) else ()
    return list(dict.fromkeys([*(PER_ELEMENT.get(name, name) for name in names), *dims]))


def _check(what: str, asked: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in asked or ():
        if name not in known:
            raise UsageError(f"{what} {name!r} of the shipped measurements is not known; known are {', '.join(known)}")
