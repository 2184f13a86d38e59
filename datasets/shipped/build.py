"""From raw folders to the packed tables and their provenance: the same content on every machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ..errors import InputError
from ..schemas import SCHEMA_VERSION
from ..store.files import reason, write_error, write_json, write_text
from ..store.parquet import read_rows
from ..version import __version__
from .gates import GATES, judge
from .normal import normal
from .notice import notice
from .pack import arrow, content_hash, row_groups, write
from .sources import LICENCES, Source, sources

PROVENANCE = "provenance.json"
NOTICE = "NOTICE"


def build(
    raw: Path,
    output: Path | None = None,
    *,
    of: Iterable[Source] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Read the raw tables below `raw`, judge their rows, pack them below `output` (None: only compute); the provenance.

    Sources whose file is not there are left out and listed under `absent`, files that no source names under `unknown`,
    sources without a licence that allows it under `unlicensed`. Raises `InputError` when no table is there or one
    cannot be read, `SchemaError` when one lacks a column, `RunError` when a file cannot be written.
    """
    if not raw.is_dir():
        raise InputError(f"{raw}: no such folder of raw tables; name one that holds ops/, collectives/ and e2e/")
    known = tuple(sources() if of is None else of)
    present = [source for source in known if (raw / source.raw).is_file()]
    unlicensed = sorted(source.name for source in present if source.licence not in LICENCES)
    entries = []
    for source in present:
        if source.name in unlicensed:
            continue
        progress(source.name)
        entries.append(_one(source, raw / source.raw, output))
    if not entries:
        raise InputError(f"{raw}: holds no raw table that foretrace knows; expected files such as {known[0].raw}")
    named = {source.raw for source in known}
    provenance = {
        "schema_version": SCHEMA_VERSION, "foretrace": __version__, "kind": "provenance",
        "content_hash": _together(entries), "sources": entries,
        "absent": sorted(source.name for source in known if source not in present), "unlicensed": unlicensed,
        "unknown": [name for name in _tables_below(raw) if name not in named],
        "gates": {gate.name: gate.why for gates in GATES.values() for gate in gates},
    }  # fmt: skip
    if output is not None:
        write_json(output / PROVENANCE, provenance)
        write_text(output / NOTICE, notice(provenance))
    return provenance


def _one(source: Source, path: Path, output: Path | None) -> dict[str, Any]:
    """Pack one source; its entry in the provenance."""
    made = normal(read_raw(path), source, where=str(path))
    found = judge(made.rows, source.table)
    rows = arrow(made.rows, source.table)
    if output is not None:
        target = output / source.file
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, target.parent) from error
        write(target, rows, table=source.table, licence=str(source.licence))
    return {
        "name": source.name, "table": source.table, "file": source.file, "raw": source.raw,
        "raw_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "repository": source.repository,
        "commit": source.commit, "licence": source.licence, "share_alike": source.share_alike,
        "copyright": source.copyright, "method": source.method, "kept": source.kept, "caveats": list(source.caveats),
        "raw_rows": made.raw_rows, "rows": rows.num_rows, "merged_repeats": made.merged,
        "dropped": dict(sorted(made.dropped.items())), "corrected": dict(sorted(made.corrected.items())),
        "gates": dict(sorted(found.items())), "spellings": made.spellings,
        "devices": _counts(rows, "device"), "parts": _counts(rows, "part"), "row_groups": row_groups(rows),
        "content_hash": content_hash(rows),
    }  # fmt: skip


def read_raw(path: Path) -> pd.DataFrame:
    """A raw table: parquet, CSV or CSV in gzip. Raises `InputError` when it is damaged."""
    try:
        if path.suffix == ".parquet":
            return read_rows(path).to_pandas()
        return pd.read_csv(path, low_memory=False, keep_default_na=False, na_values=[""])
    except OSError as error:
        raise InputError(f"{path}: cannot read the raw table: {reason(error)}") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"{path}: is no CSV table: {str(error).splitlines()[0]}") from error


def _counts(rows: pa.Table, column: str) -> dict[str, int]:
    return dict(sorted(Counter(rows.column(column).to_pylist()).items()))


def _together(entries: list[dict[str, Any]]) -> str:
    """One hash of all packed tables."""
    lines = sorted(f"{entry['name']} {entry['content_hash']}" for entry in entries)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _tables_below(raw: Path) -> list[str]:
    """Raw tables by their path below the folder, in the folders that hold raw tables."""
    found = [
        path for folder in ("ops", "collectives", "e2e")
        for kind in ("*.parquet", "*.csv", "*.csv.gz") for path in (raw / folder).glob(kind)
    ]  # fmt: skip
    return sorted(path.relative_to(raw).as_posix() for path in found)
