"""Reads a run folder, however its writers ended: what is sound is returned, what is not is set aside and named."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InputError, SchemaError
from ..schemas import SCHEMA_VERSION, STEPS, TABLES, empty, validate
from .files import DAMAGED, read_json, reason, set_aside
from .parquet import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = re.compile(r"(?P<table>[a-z]+)\.rank(?P<rank>\d+)\.(?P<part>\d+)\.parquet")
_STEPS = re.compile(r"steps\.rank(?P<rank>\d+)\.jsonl")
_MANIFEST = re.compile(r"manifest(?:\.rank(?P<rank>\d+))?\.json")


@dataclass
class RunFolder:
    """What a run folder holds."""

    path: Path
    manifests: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By rank."""
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """All tables over all ranks, by rank and then in the order in which they were written."""
    problems: list[str] = field(default_factory=list)
    """Every damaged or unreadable piece by name, and what was done about it."""


def is_run_folder(path: Path) -> bool:
    """True when the folder holds a manifest or a part file of ours."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return False
    return any(_MANIFEST.fullmatch(name) or _PART.fullmatch(name) or _STEPS.fullmatch(name) for name in names)


def read_run(path: str | Path, *, tables: Sequence[str] | None = None, repair: bool = True) -> RunFolder:
    """Read a run folder; `tables` limits what is read.

    With `repair` damaged files are renamed to `*.damaged` where the folder can be written. Raises `InputError` when
    there is no such folder, when it holds no run, or when a later version of foretrace wrote it.
    """
    path = Path(path)
    if not path.is_dir():
        found = "a file is there" if path.exists() else "nothing is there"
        raise InputError(f"{path}: expected a run folder, but {found}; name the folder given to foretrace profile -o")
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise InputError(f"{path}: cannot read the run folder: {reason(error)}") from error
    if not is_run_folder(path):
        raise InputError(f"{path}: holds no run (no manifest.json, no part files); name a folder written by foretrace")
    run = RunFolder(path)
    for name in names:
        if found_manifest := _MANIFEST.fullmatch(name):
            _read_manifest(run, path / name, int(found_manifest["rank"] or 0), repair)
    if 0 not in run.manifests and not any(problem.startswith("manifest.json") for problem in run.problems):
        run.problems.append("manifest.json: is missing; rank 0 wrote none or was not finished with it")
    run.problems += [
        f"{name}: was set aside as damaged before; what it held is missing" for name in names if name.endswith(DAMAGED)
    ]
    parts: dict[str, list[tuple[int, int, pa.Table]]] = {table: [] for table in TABLES}
    for name in names:
        part, steps = _PART.fullmatch(name), _STEPS.fullmatch(name)
        if part and part["table"] in TABLES and (tables is None or part["table"] in tables):
            rank, number = int(part["rank"]), int(part["part"])
            if (rows := _read_part(run, path / name, part["table"], rank, repair)) is not None:
                parts[part["table"]].append((rank, number, rows))
        elif steps and (tables is None or "steps" in tables):
            rank = int(steps["rank"])
            parts["steps"].append((rank, -1, _read_steps(run, path / name, rank)))
    for table, pieces in parts.items():
        pieces.sort(key=lambda piece: piece[:2])
        run.tables[table] = pa.concat_tables([rows for _, _, rows in pieces]) if pieces else empty(table)
    return run


def check_version(document: dict[str, Any], path: Path) -> None:
    """Raise `InputError` when a later version of foretrace wrote `document`, or the field makes no sense."""
    version = document.get("schema_version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{path}: schema_version must be a whole number of at least 1, found {version!r}")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema_version is {version}, written by foretrace {document.get('foretrace', '(unknown)')}; "
            f"this version reads up to {SCHEMA_VERSION}; upgrade foretrace"
        )


def _damaged(run: RunFolder, path: Path, what: str, repair: bool) -> None:
    done = set_aside(path) if repair else "left in place"
    run.problems.append(f"{path.name}: {what}; {done}")


def _read_manifest(run: RunFolder, path: Path, rank: int, repair: bool) -> None:
    try:
        document = read_json(path, what="manifest")
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            run.problems.append(str(error))
            return
        _damaged(run, path, str(error).removeprefix(f"{path}: ").removesuffix("; write it again"), repair)
        return
    check_version(document, path)
    run.manifests[rank] = document


def _read_part(run: RunFolder, path: Path, table: str, rank: int, repair: bool) -> pa.Table | None:
    try:
        rows = read_rows(path)
    except InputError as error:
        _damaged(run, path, str(error).removeprefix(f"{path}: "), repair)
        return None
    except OSError as error:
        run.problems.append(f"{path.name}: cannot be read: {reason(error)}")
        return None
    known = [name for name in rows.column_names if name in TABLES[table].names]  # columns of a later version are left
    rows = rows.select(known)
    if "rank" in TABLES[table].names:
        column = rows.column("rank") if "rank" in known else pa.nulls(rows.num_rows, pa.int64())
        filled = column.fill_null(rank)
        rows = (
            rows.set_column(known.index("rank"), "rank", filled)
            if "rank" in known
            else rows.append_column("rank", filled)
        )
    try:
        return validate(table, rows, where=path.name)
    except SchemaError as error:
        run.problems.append(f"{error}; left in place, not read")
        return None


def _read_steps(run: RunFolder, path: Path, rank: int) -> pa.Table:
    try:
        data = path.read_bytes()
    except OSError as error:
        run.problems.append(f"{path.name}: cannot be read: {reason(error)}")
        return empty("steps")
    lines = data.split(b"\n")
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            cut = number == len(lines)  # no newline after it
            what = "is cut short; the writer was probably killed" if cut else "is no JSON object"
            run.problems.append(f"{path.name}: line {number}: {what}; the other lines were read")
        elif "schema_version" in row:
            check_version(row, path)
        else:
            known = {name: row[name] for name in STEPS.names if name in row}
            rows.append((number, {"rank": rank, "skipped": False, "profiled": False, **known}))
    try:
        return validate("steps", [row for _, row in rows], where=path.name)
    except SchemaError:
        return _sound_steps(run, path, rows)


def _sound_steps(run: RunFolder, path: Path, rows: list[tuple[int, dict[str, Any]]]) -> pa.Table:
    """The lines that keep to the schema, one by one; the others are named."""
    sound = [empty("steps")]
    for number, row in rows:
        try:
            sound.append(validate("steps", [row], where=f"{path.name}: line {number}"))
        except SchemaError as error:
            run.problems.append(f"{error}; the other lines were read")
    return pa.concat_tables(sound)
