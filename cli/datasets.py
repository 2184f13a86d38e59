"""`foretrace datasets`: the group; each subcommand's module is imported when it is called for."""

from __future__ import annotations

import click

from .lazy import LazyGroup

SUBCOMMANDS = {
    "build": ("datasets_build", "Pack the shipped measurements from raw folders, or check that they are the same."),
    "devices": ("datasets_devices", "List the device catalog, or show one device with its sources."),
    "export": ("datasets_export", "Write tables as CSV, JSON or parquet."),
    "list": ("datasets_list", "List run folders and device files."),
    "shipped": (
        "datasets_shipped",
        "List the measurements that foretrace ships, with their licences.",
    ),
    "show": ("datasets_show", "Show a run folder, a device file or a table."),
    "validate": ("datasets_validate", "Check run folders, device files and tables against their schemas."),
}
"""Subcommand -> (module of this package, which defines a click command named `command`, its line in the help)."""


@click.group("datasets", cls=LazyGroup, table=SUBCOMMANDS)
def command() -> None:
    """Run folders, device files, tables, the device catalog and the measurements that foretrace ships."""
