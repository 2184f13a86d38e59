"""`python -m benchmarks.closed_loop`: measure the machine, the calibration runs and all cases; predict; report.

What was measured stays in the work folder, so that `--score-only` can predict again without measuring.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from foretrace.datasets.environment import usable_cores
from foretrace.datasets.machine import Machine
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.profiler.bench.measure import measure_machine
from foretrace.profiler.launch import launch
from foretrace.profiler.workload import run_workload

from .blocks import REPEATS, TOLERANCE, Probe, off_by
from .cases import GROUPS, Case, Group
from .report import write_report
from .score import best_of, best_tenth, score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/closed-loop"), help="where measurements are kept")
    parser.add_argument("--output", type=Path, default=Path("docs/accuracy-cpu.md"))
    parser.add_argument("--score-only", action="store_true", help="predict again from what the work folder holds")
    parser.add_argument("--groups", nargs="*", help="only these groups")
    parser.add_argument("--quick-machine", action="store_true", help="the quick sweep instead of the full one")
    arguments = parser.parse_args()
    groups = [group for group in GROUPS if not arguments.groups or group.name in arguments.groups]
    started = time.monotonic()
    arguments.work.mkdir(parents=True, exist_ok=True)
    machine_path = arguments.work / "machine.json"
    if not arguments.score_only:
        if not machine_path.exists():
            say("measuring the machine")
            measure_machine(quick=arguments.quick_machine).save(machine_path)
        usual = usual_probe()
        for group in groups:
            if not (folder := arguments.work / f"calibration-{group.name}").exists():
                say(f"calibration run of {group.name}")
                calibration_run(group, folder, usual)
        measure_cases([case for group in groups for case in group.cases()], arguments.work, usual)
    results = read_results(arguments.work)
    rows = score(groups, Machine.load(machine_path), arguments.work, results)
    taken_s = None if arguments.score_only else time.monotonic() - started
    write_report(arguments.output, rows, Machine.load(machine_path), taken_s)
    say(f"wrote {arguments.output}")
    return 0


def usual_probe(seconds: float = 20.0) -> list[float]:
    """The best tenth of the probes of some seconds: what quiet means until the cases' own probes are many."""
    probe, probes = Probe(), []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        probes.append(probe())
    return best_of(np.array(probes))


def calibration_run(group: Group, folder: Path, usual: list[float]) -> None:
    """One profiled run between two probes; repeated up to three times like any block, the quietest is kept."""
    workload, plan = load(group.workload, **group.settings), Plan.parse(group.calibration)
    probe, quietest = Probe(), math.inf
    for _ in range(1 + REPEATS):
        before = probe()
        attempt = folder.with_name(folder.name + "-attempt")
        shutil.rmtree(attempt, ignore_errors=True)  # of a benchmark that was killed
        run_workload(workload, plan, steps=20, profile_steps=5, output=attempt)
        off = off_by(before, probe(), usual)
        if off < quietest:
            quietest = off
            shutil.rmtree(folder, ignore_errors=True)
            attempt.rename(folder)
        else:
            shutil.rmtree(attempt)
        if off <= TOLERANCE:
            return


def measure_cases(cases: list[Case], work: Path, usual: list[float]) -> None:
    """Measure every case that has no result yet, in random order so that drift does not follow a group."""
    results = read_results(work)
    cases = [case for case in cases if case.name not in results]
    random.Random(1).shuffle(cases)
    for number, case in enumerate(cases, 1):
        say(f"[{number}/{len(cases)}] {case.name}")
        workload = load(case.workload, **case.settings)
        ranks = launch(
            "benchmarks.closed_loop.blocks",
            {
                "reference": workload.reference, "settings": dict(workload.settings), "plan": case.plan.to_dict(),
                "best_probe": best_tenth(results) if len(results) >= 5 else usual, "block_s": 1.0,
            },
            world_size=case.plan.world_size,
            threads=case.plan.threads_per_rank(usable_cores().usable),
            what=f"measuring {case.name}",
        )  # fmt: skip
        results[case.name] = {"ranks": ranks}
        (work / "results.json").write_text(json.dumps(results), encoding="utf-8")


def read_results(work: Path) -> dict[str, Any]:
    """What was measured so far, by case name."""
    path = work / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
