"""`foretrace datasets build`: the packed tables from raw folders, or a check that the shipped ones are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..datasets.errors import ForetraceError
from .folders import json_option
from .render.json import print_json
from .render.terminal import print_table, say, table, warn

RAW = Path("..") / "shared" / "data"
COLUMNS = ("source", "raw rows", "copies dropped", "repeats merged", "rows", "fit", "score", "apart", "suspect")


@click.command("build")
@click.option(
    "--raw", default=RAW, show_default=True, type=click.Path(path_type=Path),
    help="Folder of raw tables: ops/, collectives/, e2e/.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write; without it nothing is written.")
@json_option
def command(raw: Path, output: Path | None, as_json: bool) -> None:
    """Pack the measurements that foretrace ships from their raw folders.

    Says which rows each gate dropped or marked, and the hash of the content. Without --output it only computes, and
    ends with 1 when the content is not what this installation ships.
    """
    from ..datasets.shipped.build import build
    from ..datasets.shipped.load import FOLDER, provenance

    made = build(raw, output, progress=lambda name: say(f"packing {name}"))
    if as_json:
        print_json(made)
    else:
        _print(made)
    if output is not None:
        say(f"wrote {output}")
    elif made["content_hash"] != (shipped := provenance(FOLDER))["content_hash"]:
        raise ForetraceError(
            f"{raw}: gives other content than is shipped ({made['content_hash'][:16]}, shipped "
            f"{shipped['content_hash'][:16]}): {_difference(made, shipped)}; pass -o FOLDER to write it"
        )


def _print(made: dict[str, Any]) -> None:
    rows = [
        (
            entry["name"], entry["raw_rows"], sum(entry["dropped"].values()), entry["merged_repeats"], entry["rows"],
            *(entry["parts"].get(part, 0) for part in COLUMNS[5:]),
        )
        for entry in made["sources"]
    ]  # fmt: skip
    print_table(table(COLUMNS, rows))
    flagged = [
        (entry["name"], what, count)
        for entry in made["sources"]
        for group in ("dropped", "corrected", "gates")
        for what, count in entry[group].items()
    ]
    click.echo()
    print_table(table(("source", "gate", "rows"), flagged))
    click.echo(f"\ncontent hash {made['content_hash']}")
    for name in made["absent"]:
        warn(f"{name}: its raw table is not there; left out")
    for name in made["unlicensed"]:
        warn(f"{name}: has no licence that lets it be shipped; left out")
    for name in made["unknown"]:
        warn(f"{name}: no source of ours is this file, so nobody says under which licence it is; left out")


def _difference(made: dict[str, Any], shipped: dict[str, Any]) -> str:
    """Names of the sources that differ."""
    ours = {entry["name"]: entry["content_hash"] for entry in made["sources"]}
    theirs = {entry["name"]: entry["content_hash"] for entry in shipped["sources"]}
    return ", ".join(sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)))
