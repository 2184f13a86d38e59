"""`foretrace profile`: the group; each subcommand's module is imported when it is called for."""

from __future__ import annotations

from importlib import import_module

import click

SUBCOMMANDS = {
    "machine": ("profile_machine", "Measure this machine: a device file that predict can use."),
    "run": ("profile_run", "Profile an unchanged training script."),
    "workload": ("profile_workload", "Train a workload for real under a parallel plan."),
}
"""Subcommand -> (module of this package, which defines a click command named `command`, its line in the help)."""


class ProfileGroup(click.Group):
    """Lists subcommands without importing them, so that the help of the group stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        return import_module(f".{SUBCOMMANDS[cmd_name][0]}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group("profile", cls=ProfileGroup)
def command() -> None:
    """Measure a real run: an unchanged script, a workload under a plan, or this machine."""
