"""`foretrace profile workload`: train a workload for real under a plan and show what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .render import terminal
from .render.json import print_json
from .settings import read_plan, read_settings

if TYPE_CHECKING:
    from ..datasets.profile import Profile


@click.command("workload")
@click.argument("spec")
@click.option(
    "--plan", "plan_text", default="", metavar="PLAN", help="dp=2,micro_batches=4,...; one process if absent."
)
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting of the workload; may be repeated.")
@click.option("--global-batch", type=click.IntRange(min=1), help="Samples per step over all ranks.")
@click.option("--seq", type=click.IntRange(min=1), help="Short for --set seq=N.")
@click.option("--steps", default=20, show_default=True, type=click.IntRange(min=1), help="Timed steps.")
@click.option("--warmup", default=3, show_default=True, type=click.IntRange(min=0), help="Steps before, not counted.")
@click.option(
    "--profile-steps", default=3, show_default=True, type=click.IntRange(min=0), help="Steps after, with channels on."
)
@click.option("-o", "--output", type=click.Path(file_okay=False), help="Run folder; default runs/WORKLOAD-PLAN-TIME.")
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    spec: str,
    plan_text: str,
    pairs: tuple[str, ...],
    global_batch: int | None,
    seq: int | None,
    steps: int,
    warmup: int,
    profile_steps: int,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Train SPEC for real on this machine under a plan and save the measurements.

    SPEC is a built-in workload (dlrm, gpt, lstm, mlp, resnet, vit) or file.py:factory.
    """
    from ..datasets.workloads import load
    from ..profiler.workload import run_workload

    plan = read_plan(plan_text, global_batch)
    workload = load(spec, **read_settings(pairs, seq))
    with terminal.progress(f"{workload.name} {plan}", total=warmup + steps + profile_steps) as advance:
        profile = run_workload(
            workload,
            plan,
            steps=steps,
            warmup=warmup,
            profile_steps=profile_steps,
            output=output,
            force=force,
            progress=lambda done, _: advance(done),
        )
    if as_json:
        print_json(summary(profile))
    else:
        _print(profile)


def summary(profile: Profile) -> dict[str, Any]:
    """The document that --json prints."""
    steps = profile.steps
    return {
        "command": "profile workload",
        "workload": profile.manifest.get("workload"),
        "global_batch": profile.manifest.get("global_batch"),
        "plan": profile.manifest.get("plan"),
        "status": profile.status,
        "step_time_s": profile.step_time_s,
        "step_spread": profile.step_spread,
        "steps": int(steps.loc[~steps["profiled"].astype(bool), "step"].nunique()),
        "peak_memory_bytes": profile.peak_memory_bytes,
        "path": str(profile.path),
        "problems": list(profile.problems),
    }


def _print(profile: Profile) -> None:
    facts = summary(profile)
    time_s, spread, peak = facts["step_time_s"], facts["step_spread"], facts["peak_memory_bytes"]
    step = profile.step_time_reason if time_s is None else f"{terminal.duration(time_s)} over {facts['steps']} steps"
    rows = (
        ("workload", f"{facts['workload']['reference']}, global batch {facts['global_batch']}"),
        ("plan", str(profile.plan)),
        ("median step", step),
        ("spread", "not known from one step" if spread is None else f"± {spread:.1%}, half the interquartile range"),
        ("peak memory", profile.peak_memory_reason if peak is None else f"{terminal.size(peak)}, the fullest rank"),
        ("saved in", facts["path"]),
    )
    for label, text in rows:
        click.echo(f"{label:<13}{text}")
    for problem in facts["problems"]:
        terminal.warn(problem)
