"""A group of commands whose modules are imported when they are called, so that every help stays instant."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Subcommands from a table: name -> (module of this package with a click command `command`, line in the help)."""

    def __init__(self, *args: Any, table: dict[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None when there is no such."""
        if cmd_name not in self.table:
            return None
        return import_module(f".{self.table[cmd_name][0]}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name][1]) for name in self.list_commands(ctx)])
