"""`foretrace predict`: step time, memory and parts of a workload under a plan, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..datasets.errors import PlanError
from .render import terminal
from .render.json import print_json
from .settings import read_plan, read_settings

if TYPE_CHECKING:
    from ..predictor import Prediction

TOP_OPS = 15
_BAR = 24


@click.command("predict")
@click.argument("spec")
@click.option(
    "--plan", "plan_text", default="", metavar="PLAN", help="dp=2,micro_batches=4,...; one process if absent."
)
@click.option("--cluster", default="this", show_default=True, metavar="this|FILE", help="Device file of the machine.")
@click.option(
    "--from-profile",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="A measured run of the same model to calibrate with.",
)
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting of the workload; may be repeated.")
@click.option("--global-batch", type=click.IntRange(min=1), help="Samples per step over all ranks.")
@click.option("--seq", type=click.IntRange(min=1), help="Short for --set seq=N.")
@click.option(
    "--timeline",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.json",
    help="Write the step for Perfetto.",
)
@click.option("--explain", is_flag=True, help="List what the time is made of and what would narrow the interval.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    spec: str,
    plan_text: str,
    cluster: str,
    from_profile: Path | None,
    pairs: tuple[str, ...],
    global_batch: int | None,
    seq: int | None,
    timeline: Path | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Predict one training step of SPEC (a built-in workload or file.py:factory) under a plan."""
    from ..predictor import predict

    plan = read_plan(plan_text, global_batch)
    prediction = predict(spec, plan, cluster, from_profile=from_profile, settings=read_settings(pairs, seq))
    if timeline is not None:
        from .render.perfetto import write_timeline

        classes = [stage.stage for stage in prediction.memory]
        name = f"{prediction.workload} {prediction.plan_text}"
        write_timeline(timeline, prediction.timeline(), name=name, classes=classes)
        terminal.say(f"timeline saved in {timeline}; open it at https://ui.perfetto.dev")
    if as_json:
        print_json(prediction.to_dict())
    elif prediction.fits is not False:
        _print(prediction)
        if explain:
            _explain(prediction)
    if prediction.fits is False:
        raise PlanError(_does_not_fit(prediction))


def _does_not_fit(prediction: Prediction) -> str:
    limit = prediction.memory_limit_bytes
    largest = sorted(
        ((part, size, stage.stage) for stage in prediction.memory for part, size in stage.parts_bytes.items()),
        key=lambda item: -item[1],
    )[:3]
    parts = ", ".join(f"{part} {terminal.size(size)} ({stage})" for part, size, stage in largest)
    return (
        f"{prediction.workload} under {prediction.plan_text} does not fit: its ranks need "
        f"{terminal.size(prediction.total_memory_bytes)} and {prediction.cluster} has {terminal.size(limit)}; largest "
        f"per rank: {parts}. Use a smaller global batch, recompute=full or fsdp"
    )


def _fits(prediction: Prediction) -> str:
    need = f"{terminal.size(prediction.total_memory_bytes)} of tensors over all ranks"
    if prediction.memory_limit_bytes is None:
        return f"not known: {need}, but the device file does not say how much memory the machine has"
    return f"yes: {need}, of {terminal.size(prediction.memory_limit_bytes)}"


def _print(prediction: Prediction) -> None:
    lines = [
        ("workload", f"{prediction.workload}, {prediction.plan_text}, on {prediction.cluster}"),
        ("fits", _fits(prediction)),
        (
            "step",
            f"{terminal.duration(prediction.step_time_s)}, 80 % interval {terminal.duration(prediction.low_s)} to "
            f"{terminal.duration(prediction.high_s)}; {prediction.samples_per_s:.4g} samples/s",
        ),
    ]
    if prediction.mfu is not None:
        lines.append(("MFU", f"{prediction.mfu:.1%} ({prediction.mfu_convention})"))
    shares = ", ".join(f"{share:.0%} {name}" for name, share in prediction.source_share.items() if share >= 0.005)
    lines.append(("prices", shares))
    if prediction.inputs.get("calibration"):
        lines.append(("calibrated", f"with run {prediction.inputs['calibration']}"))
    for label, text in lines:
        click.echo(f"{label:<11}{text}")
    click.echo()
    rows = [
        (
            name,
            terminal.duration(seconds),
            f"{seconds / prediction.step_time_s:.1%}",
            _bar(seconds / prediction.step_time_s),
        )
        for name, seconds in prediction.parts_s.items()
        if seconds > 0
    ]
    terminal.print_table(terminal.table(("part of the step", "time", "share", ""), rows))
    parts = sorted({part for stage in prediction.memory for part in stage.parts_bytes})
    peaks = [
        (
            stage.stage,
            terminal.size(stage.peak_bytes),
            *(terminal.size(stage.parts_bytes.get(part, 0)) for part in parts),
        )
        for stage in prediction.memory
    ]
    click.echo()
    terminal.print_table(terminal.table(("memory of a rank at its peak", "total", *parts), peaks))
    for name, calls in prediction.unknown_ops.items():
        terminal.warn(f"operator {name} ({calls} calls a step) has no cost model: priced by its traffic")
    outside = {name: share for name, share in prediction.out_of_range.items() if share >= 0.02}
    if outside:
        named = ", ".join(f"{name} {share:.0%}" for name, share in outside.items())
        terminal.warn(f"priced outside the measured range, share of the step: {named}")


def _bar(share: float) -> str:
    return "█" * max(1, round(share * _BAR)) if share >= 0.005 else ""


def _explain(prediction: Prediction) -> None:
    rows = [
        (
            cost.name, cost.phase, cost.dims, cost.dtype, cost.calls, terminal.duration(cost.time_s),
            terminal.duration(cost.total_s), f"±{cost.spread:.0%}", cost.source,
        )
        for cost in prediction.ops[:TOP_OPS]
    ]  # fmt: skip
    click.echo()
    heads = ("op", "phase", "dims", "dtype", "calls", "each", "per step", "spread", "source")
    terminal.print_table(terminal.table(heads, rows))
    if len(prediction.ops) > TOP_OPS:
        rest = sum(cost.total_s for cost in prediction.ops[TOP_OPS:])
        click.echo(f"and {len(prediction.ops) - TOP_OPS} more, {terminal.duration(rest)} together")
    click.echo(f"\n{prediction.advice[:1].upper()}{prediction.advice[1:]}.")
