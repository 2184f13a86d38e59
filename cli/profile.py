"""`foretrace profile`: the group; each subcommand's module is imported when it is called for."""

from __future__ import annotations

import click

from .lazy import LazyGroup

SUBCOMMANDS = {
    "machine": ("profile_machine", "Measure this machine: a device file that predict can use."),
    "run": ("profile_run", "Profile an unchanged training script."),
    "workload": ("profile_workload", "Train a workload for real under a parallel plan."),
}
"""Subcommand -> (module of this package, which defines a click command named `command`, its line in the help)."""


@click.group("profile", cls=LazyGroup, table=SUBCOMMANDS)
def command() -> None:
    """Measure a real run: an unchanged script, a workload under a plan, or this machine."""
