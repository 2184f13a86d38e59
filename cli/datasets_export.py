"""`foretrace datasets export`: tables in other formats."""

from __future__ import annotations

from pathlib import Path

import click

from ..datasets.errors import UsageError
from .folders import load, table_option, warn_problems
from .render.terminal import say


@click.command("export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder, or with --table a file.")
@table_option
@click.option("-f", "--format", "form", type=click.Choice(("csv", "json", "parquet")), help="Default csv.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def command(path: Path, output: Path | None, table_name: str | None, form: str | None, force: bool) -> None:
    """Write the tables of a run folder, device file or table file as CSV, JSON or parquet.

    Without --output, the one table named by --table goes to stdout.
    """
    from ..datasets.schemas import validate as check
    from ..datasets.store.tables import format_of, table_text, write_table

    thing, frames = load(path, table_name)
    warn_problems(thing)
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
