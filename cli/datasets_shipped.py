"""`foretrace datasets shipped`: the measurements that foretrace ships, from their provenance."""

from __future__ import annotations

from typing import Any

import click

from ..datasets.errors import UsageError
from .folders import json_option
from .render.json import print_json
from .render.terminal import print_table, table

PARTS = ("fit", "score", "apart", "suspect")


@click.command("shipped")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the shipped measurements, or show one source: method, caveats, and what each gate found in it."""
    from ..datasets.shipped import provenance

    known = provenance()
    entries = known["sources"]
    if name is not None:
        found = [entry for entry in entries if entry["name"] == name]
        if not found:
            names = ", ".join(entry["name"] for entry in entries)
            raise UsageError(f"source {name!r} is not shipped; shipped are {names}")
        if as_json:
            print_json({"source": found[0], "gates": known["gates"]})
        else:
            _show(found[0], known["gates"])
        return
    if as_json:
        print_json(known)
        return
    rows = [
        (
            entry["name"], entry["table"], f"github.com/{entry['repository']}", entry["licence"],
            len(entry["devices"]), entry["rows"], *(entry["parts"].get(part, 0) for part in PARTS),
        )
        for entry in entries
    ]  # fmt: skip
    print_table(table(("source", "table", "from", "licence", "devices", "rows", *PARTS), rows))
    click.echo(f"\ncontent hash {known['content_hash']}")


def _show(entry: dict[str, Any], gates: dict[str, str]) -> None:
    for label, text in (
        ("source", entry["name"]), ("from", f"github.com/{entry['repository']}, commit {entry['commit']}"),
        ("licence", entry["licence"]), ("copyright", entry["copyright"]), ("measured by", entry["method"]),
        ("kept", entry["kept"]), ("rows", f"{entry['rows']} of {entry['raw_rows']} raw rows"),
        ("repeats", f"{entry['merged_repeats']} merged into the median of their shape"), ("file", entry["file"]),
    ):  # fmt: skip
        click.echo(f"{label:<12} {text}")
    for caveat in entry["caveats"]:
        click.echo(f"{'caveat':<12} {caveat}")
    rows = [(device, count) for device, count in entry["devices"].items()]
    click.echo()
    print_table(table(("device", "rows"), rows))
    found = [(what, count, gates.get(what, "")) for what, count in entry["gates"].items()]
    found += [(what, count, "left out") for what, count in entry["dropped"].items()]
    found += [(what, count, "put right") for what, count in entry["corrected"].items()]
    if found:
        click.echo()
        print_table(table(("gate", "rows", "why"), found))
