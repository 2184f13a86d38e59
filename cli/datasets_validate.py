"""`foretrace datasets validate`: files against their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..datasets.errors import ForetraceError, SchemaError, UsageError
from .folders import json_option, load, table_option
from .render.json import print_json
from .render.terminal import warn


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@table_option
@json_option
def command(paths: tuple[Path, ...], table_name: str | None, as_json: bool) -> None:
    """Check run folders, device files and tables against their schemas; nothing is changed.

    Exit code 3 when any has a problem; each is named with file, row (from 0) and column.
    """
    results: list[dict[str, Any]] = []
    for path in paths:
        problems: list[str] = []
        counts: dict[str, int] = {}
        try:
            thing, frames = load(path, table_name)
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
