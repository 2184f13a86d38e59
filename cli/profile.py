"""`foretrace profile`: the group; each subcommand's module is imported when it is called for."""

from __future__ import annotations

from importlib import import_module

import click

SUBCOMMANDS = {"machine": "profile_machine", "run": "profile_run", "workload": "profile_workload"}
"""Subcommand -> module of this package, which defines a click command named `command`."""


class ProfileGroup(click.Group):
    """Lists subcommands without importing them, so that the help of the group stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        return import_module(f".{SUBCOMMANDS[cmd_name]}", __package__).command


@click.group("profile", cls=ProfileGroup)
def command() -> None:
    """Measure a real run: an unchanged script, a workload under a plan, or this machine."""
