"""`foretrace datasets show`: a run folder, a device file or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .folders import json_option, load, records, table_option, warn_problems
from .render.json import print_json
from .render.terminal import print_table, table

if TYPE_CHECKING:
    import pandas as pd


@click.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@table_option
@click.option("--top", default=15, show_default=True, type=click.IntRange(min=1), help="Rows to show of a table.")
@json_option
def command(path: Path, table_name: str | None, top: int, as_json: bool) -> None:
    """Show a run folder, a device file, or a table in a parquet, CSV or JSON file."""
    thing, frames = load(path, table_name)
    if as_json:
        document = {**_summary(path, thing), "rows": {name: len(frame) for name, frame in frames.items()}}
        if table_name is not None:
            document["table"] = records(frames[table_name].head(top))
        print_json(document)
        return
    warn_problems(thing)
    if table_name is None and thing is not None:
        for label, text in _facts(thing):
            click.echo(f"{label:<14} {text}")
    for name, frame in frames.items():
        if len(frame) and (table_name is not None or name in ("ops", "collectives") or thing is None):
            _print_frame(name, frame, top)


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


def _print_frame(name: str, frame: pd.DataFrame, top: int) -> None:
    """A table with its empty columns left out; ops with the most total time first."""
    if name == "ops" and frame["time_s"].notna().any():
        total = frame["time_s"] * frame["count"].fillna(1)
        frame = frame.loc[total.sort_values(ascending=False, kind="stable").index]
    shown = frame.dropna(axis="columns", how="all")
    columns = [
        column for column in shown.columns if not (column in ("b", "m", "n", "k") and (shown[column] == 0).all())
    ]
    rows = [[record[column] for column in columns] for record in records(shown[columns].head(top))]
    click.echo(f"\n{name}: {min(top, len(frame))} of {len(frame)} rows")
    print_table(table(columns, rows))
