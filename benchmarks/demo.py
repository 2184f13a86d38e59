"""`make demo`: measure this machine, train a small GPT for real, predict it under parallel plans, then run those plans.

Every prediction is made before the run that it is compared with. Everything is kept under runs/demo/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Light modules only: the others are imported where they are used, so that Ctrl-C is caught from the first second on.
from foretrace.cli.render import terminal
from foretrace.datasets.errors import ForetraceError

if TYPE_CHECKING:
    from foretrace.datasets.machine import Machine
    from foretrace.datasets.plan import Plan
    from foretrace.datasets.profile import Profile
    from foretrace.predictor import Prediction

PLANS = ("", "dp=2", "fsdp=2", "tp=2", "pp=2,micro_batches=4")
BATCH = 8
CALIBRATION_BATCH = 4
WARMUP, STEPS, PROFILE_STEPS = 3, 15, 3
DAY = timedelta(days=1)
TRUSTED_FACTOR = 1.5
"""A device file that is further off a run of this machine is not believed; calibration would hide it, not mend it."""
BUSY_SHARE = 0.1
"""Of all cores: when others use more than this, a measurement says little."""


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/demo"), help="where everything is kept")
    parser.add_argument("--fresh", action="store_true", help="measure the machine even when that was done today")
    arguments = parser.parse_args()
    try:
        _demo(arguments.work, fresh=arguments.fresh)
    except ForetraceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"\ndemo: interrupted; what was finished is kept in {arguments.work}", file=sys.stderr)
        return 130
    return 0


def _demo(work: Path, *, fresh: bool) -> None:
    from foretrace.datasets.plan import Plan
    from foretrace.datasets.workloads import load
    from foretrace.predictor import Cluster, predict
    from foretrace.profiler.workload import run_workload

    started = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    _say("1. The machine")
    if (share := _others_share()) > BUSY_SHARE:
        _say(f"   other processes use {share:.0%} of its cores: what is measured now will be slower than it should be")
    machine = _machine(work / "machine.json", fresh=fresh)
    _say(f"   {machine.name}, {machine.facts['usable_cores']} cores; device file {work / 'machine.json'}\n")

    workload = load("gpt")

    def train(plan: Plan, name: str, profile_steps: int) -> Profile:
        with _progress(f"training under {plan}", WARMUP + STEPS + profile_steps) as advance:
            return run_workload(
                workload, plan, warmup=WARMUP, steps=STEPS, profile_steps=profile_steps, output=work / name, force=True,
                progress=lambda done, _: advance(done),
            )  # fmt: skip

    single = Plan(global_batch=CALIBRATION_BATCH)
    _say(f"2. One real run to calibrate with: {workload.name} in one process, global batch {CALIBRATION_BATCH}")
    profile = train(single, "calibration", PROFILE_STEPS)
    _say(f"   {terminal.duration(profile.step_time_s)} a step; saved in {profile.path}")
    _check(predict(workload, single, Cluster(machine)), profile)

    plans = [Plan.parse(text).with_(global_batch=BATCH) for text in PLANS]
    _say(f"3. Predicting {len(plans)} runs at global batch {BATCH}, before any of them runs")
    predictions: list[Prediction] = []
    with _progress("predicting", len(plans)) as advance:
        for done, plan in enumerate(plans):
            advance(done, str(plan))
            predictions.append(predict(workload, plan, Cluster(machine), from_profile=profile))
            _save(work, plan, predictions[-1])
    _say(f"   saved in {work}/*.prediction.json, and for https://ui.perfetto.dev in {work}/*.timeline.json\n")

    _say("4. Running them for real")
    runs, busy = [], []
    for plan in plans:
        busy.append(_others_share() > BUSY_SHARE)
        runs.append(train(plan, _name(plan), 0))
    _say("")
    _report(plans, predictions, runs, busy)
    plan = plans[1]
    _say(f"\n{(time.monotonic() - started) / 60:.1f} minutes. Look closer with:")
    _say(f"  foretrace predict gpt --plan {plan} --explain --cluster {work / 'machine.json'}")
    _say(f"  foretrace compare {work / f'{_name(plan)}.prediction.json'} {work / _name(plan)}")


def _machine(path: Path, *, fresh: bool) -> Machine:
    """This machine's device file: one of the last day, else a new one; kept at `path`."""
    from foretrace.datasets.machine import default_path
    from foretrace.profiler.bench.measure import measure_machine

    for known in () if fresh else (path, default_path()):
        machine = _still_good(known)
        if machine is not None:
            _say(f"   using {known} of {machine.created}: less than a day old (--fresh measures again)")
            if known != path:
                machine.save(path)
            return machine
    _say("   measuring it, which takes about three minutes; it is more exact when nothing else runs")
    with _progress("measuring") as advance:
        machine = measure_machine(quick=True, progress=lambda what, done: advance(done, what))
    machine.save(path)
    return machine


def _still_good(path: Path) -> Machine | None:
    """The device file at `path` when it can be read, is of this machine and less than a day old."""
    from foretrace.datasets.environment import environment
    from foretrace.datasets.machine import Machine

    try:
        machine = Machine.load(path)
        age = datetime.now(UTC) - datetime.fromisoformat(machine.created)
    except (ForetraceError, TypeError, ValueError):
        return None
    here = environment()
    same = all(machine.facts.get(key) == here[key] for key in ("cpu_model", "usable_cores", "memory_bytes", "torch"))
    return machine if same and timedelta(0) <= age < DAY else None


def _check(cold: Prediction, profile: Profile) -> None:
    """Say what the device file alone predicts of the calibration run; a factor apart, it was measured badly."""
    assert profile.step_time_s is not None
    ratio = cold.step_time_s / profile.step_time_s
    _say(f"   the device file alone predicts {terminal.duration(cold.step_time_s)} ({ratio - 1:+.0%})")
    if not 1 / TRUSTED_FACTOR < ratio < TRUSTED_FACTOR:
        _say("   that is too far: one of the two was measured while something else ran; try again with --fresh")
    _say("")


def _others_share() -> float:
    """The share of all cores that is in use while this process does nothing for a second."""
    import psutil

    return psutil.cpu_percent(interval=1.0) / 100


def _save(work: Path, plan: Plan, prediction: Prediction) -> None:
    from foretrace.cli.render.perfetto import write_timeline
    from foretrace.datasets.store.files import write_json

    write_json(work / f"{_name(plan)}.prediction.json", prediction.to_dict())
    classes = [stage.stage for stage in prediction.memory]
    write_timeline(
        work / f"{_name(plan)}.timeline.json", prediction.timeline(), name=f"{prediction.workload} {plan}",
        classes=classes,
    )  # fmt: skip


def _report(plans: list[Plan], predictions: list[Prediction], runs: list[Profile], busy: list[bool]) -> None:
    rows, errors, inside = [], [], 0
    for plan, prediction, run, disturbed in zip(plans, predictions, runs, busy, strict=True):
        step_s = run.step_time_s
        assert step_s is not None, "a run without a step raises"
        error, holds = prediction.step_time_s / step_s - 1, prediction.low_s <= step_s <= prediction.high_s
        errors.append(abs(error))
        inside += holds
        rows.append(
            (
                str(plan.with_(global_batch=None)) + (" *" if disturbed else ""),
                terminal.duration(prediction.step_time_s),
                f"{terminal.duration(prediction.low_s)} to {terminal.duration(prediction.high_s)}",
                terminal.duration(step_s),
                f"{error:+.1%}",
                "yes" if holds else "no",
                terminal.size(prediction.peak_memory_bytes),
                terminal.size(run.peak_memory_bytes),
            )
        )
    heads = ("plan", "predicted", "80 % interval", "measured", "error", "inside", "memory", "memory measured")
    terminal.print_table(terminal.table(heads, rows))
    _say(f"\nMean absolute error {sum(errors) / len(errors):.1%}; {inside} of {len(rows)} inside their interval.")
    if any(busy):
        _say("* other processes were using the cores as this run began; its error says little")


def _name(plan: Plan) -> str:
    kind = next((axis for axis in ("dp", "fsdp", "tp", "pp") if getattr(plan, axis) > 1), None)
    return f"{kind}{getattr(plan, kind)}" if kind else "single"


@contextmanager
def _progress(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar in a terminal; in a pipe or a log, a line for each new text."""
    told: set[str] = set()
    shown = terminal.stderr().is_terminal
    with terminal.progress(f"   {label}", total=total) as advance:
        if not shown:
            _say(f"   {label}")

        def report(done: int, text: str = "") -> None:
            advance(done, text)
            if not shown and text and text not in told:
                told.add(text)
                _say(f"     {text}")

        yield report


def _say(text: Any) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
