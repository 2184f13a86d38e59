"""`foretrace profile run`: profile an unchanged training script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .render import terminal

if TYPE_CHECKING:
    from ..datasets.profile import Profile

TOP_OPS = 10


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False, "max_content_width": 100},
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Run folder; default runs/SCRIPT-TIME.")
@click.option("--wait", default=1, show_default=True, type=click.IntRange(min=0), help="Steps with nothing recorded.")
@click.option("--warmup", default=1, show_default=True, type=click.IntRange(min=0), help="Steps that warm up.")
@click.option("--active", default=3, show_default=True, type=click.IntRange(min=1), help="Steps with channels on.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="How often all of that.")
@click.option(
    "--step-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="A step ends after N optimizer steps; by default when the optimizer that steps most rarely has stepped.",
)
@click.option("--ops/--no-ops", default=True, help="Operators with shapes and times.")
@click.option("--collectives/--no-collectives", default=True, help="What is sent between ranks.")
@click.option("--memory/--no-memory", default=True, help="Peak and timeline of tensors.")
@click.option("--power/--no-power", default=True, help="Power and energy of devices and CPU.")
@click.option("--host/--no-host", default=True, help="CPU time, context switches, resident memory, load.")
@click.option("-m", "--module", metavar="MODULE", help="Run a module with this Python, as python -m does.")
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    output: Path | None,
    wait: int,
    warmup: int,
    active: int,
    repeat: int,
    step_every: int | None,
    module: str | None,
    force: bool,
    command_line: tuple[str, ...],
    **channels: bool,
) -> int:
    """Run COMMAND (python train.py, torchrun ... train.py, -m module) unchanged and record its training steps.

    Ends with the script's own exit code; 1 when it ran to its end without a step, 2 when it was not started, 127 when
    there is no such command, 130 after Ctrl-C.
    """  # fmt: skip
    from ..profiler.script import RunOptions, run_script

    options = RunOptions(
        output=output, wait=wait, warmup=warmup, active=active, repeat=repeat, step_every=step_every, force=force,
        channels=tuple(name for name, on in channels.items() if on),
    )  # fmt: skip
    line = list(command_line)
    if module is not None:
        line = ["-m", module, *line]
    run = run_script(line, options)
    if os.environ.get("RANK", "0") == "0":
        if run.profile is not None and len(run.profile.steps):
            _print(run.profile)
        for message in run.messages:
            terminal.stderr().print(f"foretrace: {message}")
    return run.code


def _print(profile: Profile) -> None:
    """The end summary, on stderr: stdout is the script's."""
    if terminal.settings.quiet:
        return
    rows = [("run", str(profile.path)), ("status", profile.status), ("step rule", profile.manifest.get("step_rule"))]
    steps = profile.steps
    count = int(steps["step"].nunique())
    skipped = int(steps.groupby("step")["skipped"].any().sum())
    rows.append(("steps", f"{count} on {profile.world_size} rank(s)" + (f", {skipped} skipped" if skipped else "")))
    if profile.step_time_s is None:
        rows.append(("median step", f"not known: {profile.step_time_reason}"))
    else:
        spread = "" if profile.step_spread is None else f" ± {profile.step_spread:.1%}"
        rows.append(("median step", f"{terminal.duration(profile.step_time_s)}{spread} over {len(profile.step_times)}"))
    peak = profile.peak_memory_bytes
    rows.append(
        ("peak memory", terminal.size(peak) if peak is not None else f"not known: {profile.peak_memory_reason}")
    )
    hook_s = (profile.manifest.get("overhead") or {}).get("hook_s_per_step")
    if hook_s is not None:
        rows.append(("our hooks", f"{terminal.duration(hook_s)} per step outside the active window"))
    console = terminal.stderr()
    console.print("")
    for label, text in rows:
        console.print(f"{label:<16}{text}")
    for name, channel in sorted((profile.manifest.get("channels") or {}).items()):
        if channel.get("status") is None:
            console.print(f"{'no ' + name:<16}{channel.get('reason')}")
    if len(profile.ops):
        terminal.print_table(_top_ops(profile), console)
    for problem in profile.problems:
        terminal.warn(problem)


def _top_ops(profile: Profile) -> Any:
    """The ops of the lowest rank that take most of a step."""
    ops = profile.ops[profile.ops["rank"] == profile.ops["rank"].min()].copy()
    ops["total_s"] = ops["time_s"] * ops["count"]
    whole = ops["total_s"].sum()
    rows = []
    for one in ops.nlargest(TOP_OPS, "total_s").itertuples():
        dims = "×".join(str(size) for size in (one.b, one.m, one.n, one.k) if size)
        share = f"{one.total_s / whole:.1%}" if whole else "-"
        rows.append(
            (
                one.name,
                one.phase,
                dims,
                one.dtype,
                one.count,
                f"{one.time_s * 1e6:.1f}",
                f"{one.total_s * 1e3:.3f}",
                share,
            )
        )
    columns = ("op", "phase", "dims", "dtype", "calls/step", "us/call", "ms/step", "of op time")
    return terminal.table(columns, rows, title=f"top {len(rows)} of {len(ops)} ops")
