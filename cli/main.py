"""The `foretrace` command: global options, lazy subcommands, and the one place where errors become exit codes.

Exit codes: 0 done; 1 failed; 2 usage; 3 an input could not be read; 4 the plan is invalid or does not fit;
5 regression found (`compare --fail-on`); 130 interrupted; 141 the reader of stdout went away. A profiled script's own
exit code is passed on.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..datasets.errors import ForetraceError
from ..datasets.store.files import reason
from .render import terminal

COMMANDS = {
    "compare": ("compare", "Set a prediction beside a profile, or two profiles side by side."),
    "datasets": ("datasets", "Runs, device files, tables, the device catalog and shipped measurements."),
    "predict": ("predict", "Predict step time and memory of a workload under a plan."),
    "price": ("price", "Price ops and collectives on devices, measured or never touched."),
    "profile": ("profile", "Measure a real run, a workload under a plan, or this machine."),
}
"""Command -> module of this package that defines a click command named `command`, and its line in the help.

The line stands here so that `foretrace --help` imports no command.
"""

INTERRUPTED = 130
CLOSED_PIPE = 141


class _ClosedPipe(Exception):
    """The reader of our stdout went away; click must not see it, it would exit with 1."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None when there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        return import_module(f".{COMMANDS[cmd_name][0]}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedPipe from error


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from ..datasets.environment import driver_version, library_version

    python = ".".join(map(str, sys.version_info[:3]))
    torch = library_version("torch") or "not installed"
    click.echo(f"foretrace {__version__} (python {python}, torch {torch}, NVIDIA driver {driver_version() or 'none'})")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
    help="Show the versions of foretrace, Python, torch and the driver.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress and no hints; errors and warnings only.")
@click.option("-v", "--verbose", is_flag=True, help="Say more, and show where an error came from.")
def foretrace(quiet: bool, verbose: bool) -> None:
    """Profile real training runs; predict step time, memory and parallel plans before renting the machines."""
    terminal.configure(quiet=quiet, verbose=verbose)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. `arguments` default to `sys.argv[1:]`."""
    _never_fail_to_print()
    try:
        try:
            code = foretrace.main(args=arguments, prog_name="foretrace", standalone_mode=False)
        finally:
            sys.stdout.flush()
    except ForetraceError as error:
        return _report(str(error), error.exit_code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return _report_usage(error)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _report("interrupted", INTERRUPTED, label="")
    except (_ClosedPipe, BrokenPipeError):
        _drop_stdout()
        return CLOSED_PIPE
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        _drop_stdout()
        place = error.filename if error.filename is not None else "output"
        return _report(f"{place}: {reason(error)}", ForetraceError.exit_code)
    return code if isinstance(code, int) else 0


def _report(message: str, code: int, *, label: str = "error: ") -> int:
    """Print one message to stderr and give back the exit code."""
    if terminal.settings.verbose:
        traceback.print_exc()
    with suppress(OSError):
        print(f"foretrace: {label}{message}", file=sys.stderr, flush=True)
    return code


def _report_usage(error: click.UsageError) -> int:
    """A usage error with the command's usage line, as click writes it, but under our name."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        with suppress(OSError):
            print(error.format_message(), file=sys.stderr)
        return error.exit_code
    hint = ""
    if error.ctx is not None:
        hint = f"; see: {error.ctx.command_path} --help"
    return _report(error.format_message().rstrip(".") + hint, error.exit_code)


def _never_fail_to_print() -> None:
    """Replace what a narrow terminal encoding cannot show; a message must not end in UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _drop_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain while it ends."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)


def run() -> None:
    """Entry point of the installed script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
