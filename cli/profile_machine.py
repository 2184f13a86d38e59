"""`foretrace profile machine`: measure this machine into a device file that `predict` can use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import UsageError
from .render import terminal
from .render.json import print_json

if TYPE_CHECKING:
    from ..datasets.machine import Machine


@click.command("machine")
@click.option("--quick", is_flag=True, help="Fewer shapes and repetitions: two to three minutes instead of fifteen.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Device file; default: the one that 'this' means.",
)
@click.option("--name", help="Name of the machine in predictions; default: the CPU's model name.")
@click.option("--force", is_flag=True, help="Overwrite a device file named with -o.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(quick: bool, output: Path | None, name: str | None, force: bool, as_json: bool) -> None:
    """Measure this machine: ops, collectives and host time, alone and with all cores busy."""
    from ..datasets.machine import default_path
    from ..profiler.bench.measure import measure_machine

    if output is not None and output.exists() and not force:
        raise UsageError(f"-o {output}: exists already; choose another file or give --force")
    path = output or default_path()
    with terminal.progress("measuring") as advance:
        machine = measure_machine(quick=quick, name=name, progress=lambda what, done: advance(done, what))
    machine.save(path)
    facts = summary(machine, path)
    if as_json:
        print_json(facts)
    else:
        _print(facts)


def summary(machine: Machine, path: Path) -> dict[str, Any]:
    """The document that --json prints."""
    pairs = machine.collectives[(machine.collectives.ranks == 2) & (machine.collectives.compute == "idle")]
    reduces = pairs[pairs.kind == "all_reduce"].sort_values("bytes")
    training = machine.host[machine.host.kind == "training"].groupby("phase").time_s.median()
    return {
        "command": "profile machine",
        "path": str(path),
        "name": machine.name,
        "content_hash": machine.content_hash,
        "seconds_taken_s": machine.seconds_taken_s,
        "rows": {"ops": len(machine.ops), "collectives": len(machine.collectives), "host": len(machine.host)},
        "peaks": machine.peaks,
        "mood": machine.facts.get("mood"),
        "host_time_per_op_s": {str(phase): float(value) for phase, value in training.items()},
        "all_reduce_latency_s": float(reduces.time_s.iloc[0]) if len(reduces) else None,
        "all_reduce_bytes_per_s": float((reduces.bytes / reduces.time_s).iloc[-1]) if len(reduces) else None,
    }


def _print(facts: dict[str, Any]) -> None:
    rows: list[tuple[str, str]] = []
    for key, value in facts["peaks"].items():
        what, _, where = key.partition("_per_s_")
        unit = "GFLOP/s" if what.endswith("flops") else "GB/s"
        rows.append(
            (
                f"{what.removesuffix('_flops').removesuffix('_bytes').replace('_', ' ')}, {where.replace('_', ' ')}",
                f"{value / 1e9:.1f} {unit}",
            )
        )
    for phase, value in facts["host_time_per_op_s"].items():
        rows.append((f"host time per op, {phase}", terminal.duration(value)))
    rows.append(("all-reduce of 2 ranks, latency", terminal.duration(facts["all_reduce_latency_s"])))
    if facts["all_reduce_bytes_per_s"] is not None:
        rows.append(("all-reduce of 2 ranks, large", f"{facts['all_reduce_bytes_per_s'] / 1e9:.2f} GB/s"))
    if facts["mood"] is not None:
        rows.append(("its speed came and went by", f"± {facts['mood']:.0%}"))
    terminal.print_table(terminal.table(("what", "measured"), rows))
    counts = facts["rows"]
    click.echo(
        f"{facts['name']}: {counts['ops']} op rows, {counts['collectives']} collective rows, "
        f"{counts['host']} host rows "
        f"in {facts['seconds_taken_s']:.0f} s, saved in {facts['path']}"
    )
