"""Text for people: tables on stdout, progress and warnings on stderr. rich is imported on first use.

Plain text when NO_COLOR is set, TERM is dumb or the stream is no terminal; FORCE_COLOR overrides the last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 10_000


@dataclass
class Settings:
    """What `-q` and `-v` set for the whole process."""

    quiet: bool = False
    verbose: bool = False


settings = Settings()


def configure(*, quiet: bool, verbose: bool) -> None:
    """Set the settings of this process."""
    settings.quiet, settings.verbose = quiet, verbose


def stdout() -> Console:
    """Console for results."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Console for progress, hints and warnings."""
    return _console(sys.stderr)


@lru_cache(maxsize=4)
def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    terminal = stream.isatty() or bool(os.environ.get("FORCE_COLOR"))
    return Console(
        file=stream,
        color_system=None if plain or not terminal else "auto",
        force_terminal=False if plain else None,
        # A pipe has no width: nothing is wrapped there.
        width=None if stream.isatty() else _WIDE,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def say(text: str) -> None:
    """A line for people on stderr; not with `--quiet`."""
    if not settings.quiet:
        stderr().print(text)


def warn(text: str) -> None:
    """Something the reader should act on, on stderr; also with `--quiet`."""
    stderr().print(f"foretrace: warning: {text}")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> Table:
    """A table; columns that hold only numbers (or None, shown as "-") are set right and never cut.

    Cells are texts or numbers already in the unit of the column's head.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False)
    for index, head in enumerate(columns):
        cells = [row[index] for row in rows]
        if _numeric(cells):
            width = max([len(head), *(len(cell_text(cell)) for cell in cells)])
            made.add_column(head, justify="right", no_wrap=True, min_width=width)
        else:
            made.add_column(head, overflow="fold")
    for row in rows:
        made.add_row(*(cell_text(cell) for cell in row))
    return made


def print_table(made: Table, console: Console | None = None) -> None:
    """Print a table, wider than the terminal when its numbers need it: a wrapped line is read, a cut number is not."""
    from rich.measure import Measurement

    console = console or stdout()
    wide = console.options.update(width=_WIDE)
    needed = Measurement.get(console, wide, made)
    width = needed.maximum if console.width >= _WIDE else max(min(needed.maximum, console.width), needed.minimum)
    with console.capture() as capture:
        console.print(made, width=width, soft_wrap=False, crop=False, no_wrap=False)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    console.file.write(text + "\n")


def cell_text(cell: Any) -> str:
    """A cell as text: "-" for None, four significant digits for a float."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1e4 else f"{cell:.0f}"
    return str(cell)


def _numeric(cells: Sequence[Any]) -> bool:
    known = [cell for cell in cells if cell not in (None, "", "-")]
    return bool(known) and all(isinstance(cell, int | float) or _number_text(cell) for cell in known)


def _number_text(cell: Any) -> bool:
    """True for a text that starts as a number does: `12.3 ms`, `-4 %`, `±2`."""
    text = str(cell).lstrip("+-±−").strip()
    return bool(text) and text[0].isdigit()


def duration(seconds: float | None) -> str:
    """Seconds in the unit that suits them: `1.23 s`, `45.6 ms`, `7.89 us`; "-" for None."""
    if seconds is None or seconds != seconds:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * scale >= 1.0 or unit == "us":
            return f"{seconds * scale:.4g} {unit}"
    raise AssertionError(seconds)


def size(count: float | None) -> str:
    """Bytes with a binary unit: `1.5 GiB`; "-" for None."""
    if count is None or count != count:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Any]:
    """A progress bar on stderr; gives `advance(done, text="")`. Nothing shows with `--quiet` or in a pipe."""
    console = stderr()
    if settings.quiet or not console.is_terminal:
        yield lambda done, text="": None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done, text="": bar.update(task, completed=done, description=f"{label} {text}".rstrip())
