"""What the `datasets` commands share: how a path is read, whatever of ours it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import InputError, UsageError
from .render.terminal import warn

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.machine import Machine
    from ..datasets.profile import Profile

TABLE_NAMES = ("ops", "collectives", "host", "events", "steps", "samples", "memory")
MACHINE_TABLES = ("ops", "collectives", "host")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
table_option = click.option("--table", "table_name", type=click.Choice(TABLE_NAMES), help="Only this table.")


def load(path: Path, table_name: str | None) -> tuple[Profile | Machine | None, dict[str, pd.DataFrame]]:
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


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts, None for what is empty."""
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def warn_problems(thing: Any) -> None:
    """Say on stderr what was wrong with a run folder."""
    for problem in getattr(thing, "problems", []):
        warn(problem)
