"""`foretrace price`: the group; each subcommand's module is imported when it is called for."""

from __future__ import annotations

import click

from .lazy import LazyGroup

SUBCOMMANDS = {
    "collectives": ("price_collectives", "Price a table of collectives and messages between devices."),
    "op": ("price_op", "Price one op on one device, several, or all."),
    "ops": ("price_ops", "Price a table of ops."),
    "plan-timings": ("price_plan_timings", "Name the shapes of a table of ops that are worth timing."),
}
"""Subcommand -> (module of this package, which defines a click command named `command`, its line in the help)."""


@click.group("price", cls=LazyGroup, table=SUBCOMMANDS)
def command() -> None:
    """Price operations on devices, measured or never touched: time, interval, and where the price comes from."""
