"""`make demo`: measure this machine, train a small GPT for real, predict it under parallel plans, then run those plans.

Every prediction is made before the run that it is compared with. Everything is kept under runs/demo/.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from foretrace.cli.render import terminal
from foretrace.cli.render.perfetto import write_timeline
from foretrace.datasets.errors import ForetraceError
from foretrace.datasets.machine import Machine
from foretrace.datasets.plan import Plan
from foretrace.datasets.store.files import write_text
from foretrace.datasets.workloads import load
from foretrace.predictor import Cluster, Prediction, predict
from foretrace.profiler.bench.measure import measure_machine
from foretrace.profiler.workload import run_workload

PLANS = ("dp=2", "fsdp=2", "tp=2", "pp=2,micro_batches=4")
BATCH = 8
CALIBRATION_BATCH = 4
STEPS = 12
DAY_S = 86_400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/demo"))
    parser.add_argument("--fresh", action="store_true", help="measure the machine even when that was done today")
    arguments = parser.parse_args()
    try:
        _demo(arguments.work, fresh=arguments.fresh)
    except ForetraceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("demo: interrupted; what was measured so far is kept", file=sys.stderr)
        return 130
    return 0


def _demo(work: Path, *, fresh: bool) -> None:
    started = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    machine = _machine(work / "machine.json", fresh=fresh)
    _say(f"\n{machine}\n")
    workload = load("gpt", layers=4, width=256, heads=4, seq=128, vocab=4096)

    _say(f"1. Profiling a small GPT training in one process, batch {CALIBRATION_BATCH}")
    single = _folder(work / "single")
    with terminal.progress("training", total=STEPS + 6) as advance:
        profile = run_workload(
            workload,
            Plan(global_batch=CALIBRATION_BATCH),
            steps=STEPS,
            output=single,
            progress=lambda done, _: advance(done),
        )
    _say(f"   {terminal.duration(profile.step_time_s)} a step; saved in {single}\n")

    _say(f"2. Predicting batch {BATCH} under {len(PLANS) + 1} plans, none of which has run yet")
    plans = [Plan.parse(text).with_(global_batch=BATCH) for text in ("single", *PLANS)]
    predictions = [predict(workload, plan, Cluster(machine), from_profile=profile) for plan in plans]
    for plan, prediction in zip(plans, predictions, strict=True):
        name = _name(plan)
        classes = [stage.stage for stage in prediction.memory]
        write_timeline(work / f"{name}.timeline.json", prediction.timeline(), name=f"gpt {plan}", classes=classes)
        write_text(
            work / f"{name}.prediction.json", json.dumps(prediction.to_dict(), allow_nan=False, sort_keys=True) + "\n"
        )
    _say(f"   predictions and timelines (open them at https://ui.perfetto.dev) saved in {work}\n")

    _say("3. Running the same plans for real")
    measured = []
    for plan in plans:
        with terminal.progress(str(plan), total=STEPS + 3) as advance:
            run = run_workload(
                workload, plan, steps=STEPS, profile_steps=0, output=_folder(work / _name(plan)),
                progress=lambda done, _, advance=advance: advance(done),
            )  # fmt: skip
        measured.append(run)
    _say("")
    rows = [_row(plan, prediction, run) for plan, prediction, run in zip(plans, predictions, measured, strict=True)]
    heads = ("plan", "predicted", "80 % interval", "measured", "error", "inside", "memory predicted", "measured")
    terminal.print_table(terminal.table(heads, rows))
    _say(f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes. Next:")
    _say(f"foretrace predict gpt --plan dp=2 --explain --cluster {work / 'machine.json'}")


def _machine(path: Path, *, fresh: bool) -> Machine:
    if path.exists() and not fresh and time.time() - path.stat().st_mtime < DAY_S:
        _say(f"Using the device file {path}, measured less than a day ago (--fresh measures again)")
        return Machine.load(path)
    _say("Measuring this machine (quick: about three minutes)")
    with terminal.progress("measuring") as advance:
        machine = measure_machine(quick=True, progress=lambda what, done: advance(done, what))
    machine.save(path)
    return machine


def _row(plan: Plan, prediction: Prediction, run: object) -> tuple[str, ...]:
    step_s = run.step_time_s  # type: ignore[attr-defined]
    inside = prediction.low_s <= step_s <= prediction.high_s
    return (
        str(plan),
        terminal.duration(prediction.step_time_s),
        f"{terminal.duration(prediction.low_s)} to {terminal.duration(prediction.high_s)}",
        terminal.duration(step_s),
        f"{prediction.step_time_s / step_s - 1:+.1%}",
        "yes" if inside else "no",
        terminal.size(prediction.peak_memory_bytes),
        terminal.size(run.peak_memory_bytes),  # type: ignore[attr-defined]
    )


def _name(plan: Plan) -> str:
    kind = next((axis for axis in ("dp", "fsdp", "tp", "pp") if getattr(plan, axis) > 1), "one")
    return f"{kind}{plan.world_size}" if plan.world_size > 1 else "one-process"


def _folder(path: Path) -> Path:
    """A run folder of this demo, emptied of an earlier demo's run."""
    if path.exists():
        shutil.rmtree(path)
    return path


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
