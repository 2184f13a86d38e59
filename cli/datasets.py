"""`foretrace datasets`: list, show, validate and export run folders, device files and tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import ForetraceError, InputError, SchemaError, UsageError
from .render.json import print_json
from .render.terminal import print_table, say, table, warn

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.machine import Machine
    from ..datasets.profile import Profile

TABLE_NAMES = ("ops", "collectives", "host", "events", "steps", "samples", "memory")
MACHINE_TABLES = ("ops", "collectives", "host")
SEARCH_DEPTH = 4
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
_table_option = click.option("--table", "table_name", type=click.Choice(TABLE_NAMES), help="Only this table.")


@click.group("datasets")
def command() -> None:
    """List, show, validate and export run folders, device files and tables."""


@command.command("list")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@_json_option
def list_(folder: Path | None, as_json: bool) -> None:
    """List run folders and device files under FOLDER (default: here) and in the cache."""
    from ..datasets.machine import cache_dir

    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    roots = [folder or Path(), cache_dir()]
    found: dict[Path, dict[str, Any]] = {}
    for root in roots:
        for path in _walk(root, SEARCH_DEPTH):
            if path.resolve() not in found and (entry := _entry(path)) is not None:
                found[path.resolve()] = entry
    entries = sorted(found.values(), key=lambda entry: (entry["kind"], entry["path"]))
    if as_json:
        print_json({"entries": entries})
        return
    if not entries:
        say(f"no run folder and no device file under {' or '.join(map(str, roots))}")
        return
    rows = [
        (
            entry["kind"], entry["path"], entry["what"], entry["plan"], entry["status"],
            None if entry["step_time_s"] is None else f"{1e3 * entry['step_time_s']:.2f}", entry["created"],
        )
        for entry in entries
    ]  # fmt: skip
    print_table(table(("kind", "path", "what", "plan", "status", "step ms", "created"), rows))


@command.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@_table_option
@click.option("--top", default=15, show_default=True, type=click.IntRange(min=1), help="Rows to show of a table.")
@_json_option
def show(path: Path, table_name: str | None, top: int, as_json: bool) -> None:
    """Show a run folder, a device file, or a table in a parquet, CSV or JSON file."""
    thing, frames = _load(path, table_name)
    if as_json:
        document = {**_summary(path, thing), "rows": {name: len(frame) for name, frame in frames.items()}}
        if table_name is not None:
            document["table"] = _records(frames[table_name].head(top))
        print_json(document)
        return
    _warn_problems(thing)
    if table_name is None and thing is not None:
        for label, text in _facts(thing):
            click.echo(f"{label:<14} {text}")
    for name, frame in frames.items():
        if len(frame) and (table_name is not None or name in ("ops", "collectives") or thing is None):
            _print_frame(name, frame, top)


@command.command("validate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@_table_option
@_json_option
def validate(paths: tuple[Path, ...], table_name: str | None, as_json: bool) -> None:
    """Check run folders, device files and tables against their schemas; nothing is changed.

    Exit code 3 when any has a problem; each is named with file, row (from 0) and column.
    """
    results: list[dict[str, Any]] = []
    for path in paths:
        problems: list[str] = []
        counts: dict[str, int] = {}
        try:
            thing, frames = _load(path, table_name)
            counts = {name: len(frame) for name, frame in frames.items() if len(frame)}
            problems = [
                text if text.startswith(str(path)) else f"{path}: {text}" for text in getattr(thing, "problems", [])
            ]
            _ = getattr(thing, "plan", None)  # reading it checks it
        except UsageError:
            raise
        except ForetraceError as error:
            problems.append(str(error))
        results.append({"path": str(path), "problems": problems, "rows": counts})
    bad = sum(bool(result["problems"]) for result in results)
    if as_json:
        print_json({"results": results, "valid": not bad})
    else:
        for result in results:
            if not result["problems"]:
                rows = ", ".join(f"{count} {name}" for name, count in result["rows"].items()) or "no rows"
                click.echo(f"{result['path']}: ok ({rows})")
    problems = [problem for result in results for problem in result["problems"]]
    for problem in problems[:-1]:
        warn(problem)
    if problems:
        raise SchemaError(problems[-1])


@command.command("export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder, or with --table a file.")
@_table_option
@click.option("-f", "--format", "form", type=click.Choice(("csv", "json", "parquet")), help="Default csv.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def export(path: Path, output: Path | None, table_name: str | None, form: str | None, force: bool) -> None:
    """Write the tables of a run folder, device file or table file as CSV, JSON or parquet.

    Without --output, the one table named by --table goes to stdout.
    """
    from ..datasets.schemas import validate as check
    from ..datasets.store.tables import format_of, table_text, write_table

    thing, frames = _load(path, table_name)
    _warn_problems(thing)
    if output is None:
        if table_name is None or form == "parquet":
            raise UsageError("export to stdout takes one --table and the format csv or json; or give -o FOLDER")
        rows = check(table_name, frames[table_name], where=str(path))
        click.echo(table_text(table_name, rows, form or "csv"), nl=False)
        return
    named = format_of(output)
    if named is not None and (table_name is None or form not in (None, named)):
        wrong = "a file takes one --table" if table_name is None else f"its name contradicts --format {form}"
        raise UsageError(f"-o {output}: {wrong}; name a folder to export all tables")
    targets = {
        name: output if named is not None else output / f"{name}.{form or 'csv'}"
        for name, frame in frames.items()
        if len(frame) or name == table_name
    }
    if taken := [target for target in targets.values() if target.exists() and not force]:
        raise UsageError(f"{taken[0]}: exists; choose another place or pass --force")
    _make_folder(output if named is None else output.parent)
    for name, target in targets.items():
        write_table(target, name, check(name, frames[name], where=str(path)))
        say(f"wrote {target} ({len(frames[name])} rows)")
    if not targets:
        say(f"{path}: every table is empty; nothing was written")


def _make_folder(folder: Path) -> None:
    from ..datasets.store.files import write_error

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, folder, UsageError) from error


def _load(path: Path, table_name: str | None) -> tuple[Profile | Machine | None, dict[str, pd.DataFrame]]:
    """What a path holds, as (Profile, Machine or None for a bare table, its tables). Renames nothing."""
    from ..datasets.machine import KIND, Machine
    from ..datasets.profile import Profile
    from ..datasets.store.files import read_json
    from ..datasets.store.tables import format_of, read_table

    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    thing: Any = None
    if path.is_dir():
        thing = Profile.load(path, repair=False)
        frames = {name: getattr(thing, name) for name in TABLE_NAMES}
    elif format_of(path) == "json" and read_json(path, what="device file or table").get("kind") == KIND:
        thing = Machine.load(path)
        frames = {name: getattr(thing, name) for name in MACHINE_TABLES}
    elif format_of(path) == "json" and "rows" not in read_json(path, what="device file or table"):
        raise InputError(f"{path}: is neither a device file (kind 'machine') nor an exported table (no 'rows')")
    else:
        name, rows = read_table(path, table_name)
        return None, {name: rows.to_pandas()}
    if table_name is not None:
        if table_name not in frames:
            raise UsageError(f"{path}: a device file has no table {table_name}; it has {', '.join(MACHINE_TABLES)}")
        frames = {table_name: frames[table_name]}
    return thing, frames


def _walk(root: Path, depth: int) -> Iterator[Path]:
    """Run folders and JSON files under `root`, not deeper than `depth`, hidden and library folders left out."""
    from ..datasets.store import is_run_folder

    if not root.is_dir():
        return
    if is_run_folder(root):
        yield root
        return
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir() and not entry.is_symlink() and depth > 0:
            yield from _walk(entry, depth - 1)
        elif entry.suffix == ".json" and entry.is_file():
            yield entry


def _entry(path: Path) -> dict[str, Any] | None:
    """One line of `list`; None when the path is nothing of ours. A damaged one of ours is listed as such."""
    from ..datasets.machine import Machine
    from ..datasets.profile import Profile

    entry = dict.fromkeys(("what", "plan", "status", "step_time_s", "created"))
    entry["path"] = str(path)
    try:
        if path.is_dir():
            profile = Profile.load(path, repair=False, tables=("steps",))
            return {
                **entry, "kind": "profile", "what": _what(profile), "status": profile.status,
                "plan": None if profile.plan is None else str(profile.plan), "step_time_s": profile.step_time_s,
                "created": profile.manifest.get("created"), "problems": profile.problems,
            }  # fmt: skip
        if not _looks_like_machine(path):
            return None
        machine = Machine.load(path)
        sweep = "quick" if machine.quick else "full"
        return {**entry, "kind": "machine", "what": machine.name, "status": sweep, "created": machine.created}
    except ForetraceError as error:
        kind = "profile" if path.is_dir() else "machine"
        return {**entry, "kind": kind, "status": "damaged", "problems": [str(error)]}


def _looks_like_machine(path: Path) -> bool:
    """Cheap test before a whole file is read: `list` meets any JSON file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        text = file.read(1 << 20) if size <= 1 << 28 else b""
    return b'"foretrace"' in text and b'"kind": "machine"' in text


def _what(profile: Profile) -> str | None:
    workload = profile.manifest.get("workload")
    if isinstance(workload, dict):
        return str(workload.get("reference") or workload.get("name") or "workload")
    command_line = profile.manifest.get("command")
    if isinstance(command_line, list):
        return " ".join(map(str, command_line))
    return None if command_line is None else str(command_line)


def _facts(thing: Any) -> list[tuple[str, str]]:
    if hasattr(thing, "facts") and callable(thing.facts):
        return [(label, text) for label, text in thing.facts() if label != "problem"]
    rows = [("machine", thing.name), ("created", thing.created), ("hash", thing.content_hash)]
    rows += [(key, str(value)) for key, value in sorted(thing.facts.items())]
    rows += [(key, f"{value:.4g}" if value is not None else "-") for key, value in sorted(thing.peaks.items())]
    return rows


def _summary(path: Path, thing: Any) -> dict[str, Any]:
    if thing is None:
        return {"path": str(path), "kind": "table"}
    if hasattr(thing, "manifests"):
        return {
            "path": str(path), "kind": "profile", "status": thing.status, "manifest": thing.manifest,
            "step_time_s": thing.step_time_s, "step_time_reason": thing.step_time_reason,
            "step_spread": thing.step_spread, "peak_memory_bytes": thing.peak_memory_bytes,
            "peak_memory_reason": thing.peak_memory_reason, "problems": thing.problems,
        }  # fmt: skip
    return {
        "path": str(path), "kind": "machine", "name": thing.name, "created": thing.created, "facts": thing.facts,
        "peaks": thing.peaks, "quick": thing.quick, "content_hash": thing.content_hash,
    }  # fmt: skip


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _warn_problems(thing: Any) -> None:
    for problem in getattr(thing, "problems", []):
        warn(problem)


def _print_frame(name: str, frame: pd.DataFrame, top: int) -> None:
    """A table with its empty columns left out; ops with the most total time first."""
    if name == "ops" and frame["time_s"].notna().any():
        total = frame["time_s"] * frame["count"].fillna(1)
        frame = frame.loc[total.sort_values(ascending=False, kind="stable").index]
    shown = frame.dropna(axis="columns", how="all")
    columns = [
        column for column in shown.columns if not (column in ("b", "m", "n", "k") and (shown[column] == 0).all())
    ]
    rows = [[record[column] for column in columns] for record in _records(shown[columns].head(top))]
    click.echo(f"\n{name}: {min(top, len(frame))} of {len(frame)} rows")
    print_table(table(columns, rows))
