"""run_workload: train a workload for real under a plan on this host, and return what was measured as a Profile."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from ..datasets.environment import usable_cores
from ..datasets.errors import UsageError
from ..datasets.plan import Plan
from ..datasets.profile import Profile
from ..datasets.workloads import Workload, load
from .launch import launch

CHANNELS = ("ops", "collectives", "memory", "host")
"""Channels that are on unless the caller says otherwise."""


def run_workload(
    workload: Workload | str,
    plan: Plan | None = None,
    *,
    steps: int = 20,
    warmup: int = 3,
    profile_steps: int = 3,
    output: str | Path | None = None,
    channels: Sequence[str] = CHANNELS,
    force: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Run `workload` under `plan` (one process by default) in rank processes of its own.

    After `warmup` steps, `steps` are timed with no profiler near them; then `profile_steps` more are recorded by
    `channels`, and, with the channel `memory`, one more is weighed. The step time of a run of several ranks is the
    maximum over its ranks. `output` is the run folder, by default `runs/<workload>-<plan>-<time>`. `progress` is called
    with (steps done, all steps).

    Raises what `check_plan` raises before anything starts, `UsageError` for a workload that cannot be rebuilt in
    another process or an output folder that is in use, and `RunError` when a rank dies. On Ctrl-C every rank ends,
    finished steps stay in the folder, and `KeyboardInterrupt` passes on.
    """
    plan = plan or Plan()
    if isinstance(workload, str):
        workload = load(workload)
    if workload.reference is None:
        raise UsageError(
            f"workload {workload.name}: it was not made by load(), so that a rank process could not make it again; "
            "use load('file.py:factory', ...)"
        )
    try:
        json.dumps(dict(workload.settings))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"workload {workload}: a setting cannot be handed to a rank process as JSON ({error}); use numbers and text"
        ) from error
    for name, value, least in (("steps", steps, 1), ("warmup", warmup, 0), ("profile_steps", profile_steps, 0)):
        if value < least:
            raise UsageError(f"running {workload}: {name} must be at least {least}, found {value}")
    from ..datasets.workloads.parallel import check_plan

    check_plan(workload, plan)
    folder = Path(output) if output is not None else default_output(workload, plan)
    _check_output(folder, force=force)
    total = warmup + steps + profile_steps
    launch(
        "foretrace.profiler.training",
        {
            "reference": workload.reference,
            "settings": dict(workload.settings),
            "plan": plan.to_dict(),
            "steps": steps,
            "warmup": warmup,
            "profile_steps": profile_steps,
            "channels": list(channels),
            "output": str(folder.resolve()),
            "force": force,
            "seed": seed,
            "run_id": uuid.uuid4().hex,
            "command": list(sys.argv),
            # perf_counter is one clock for all processes of a host.
            "clock_origin_s": time.perf_counter(),
        },
        world_size=plan.world_size,
        threads=plan.threads_per_rank(usable_cores().usable),
        what=f"training {workload.name} under plan {plan}",
        progress=None if progress is None else lambda done: progress(max(0, done), total),
    )
    return Profile.load(folder)


def _check_output(folder: Path, *, force: bool) -> None:
    """Say at once what the store would say only after the warm-up."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file, not a run folder; choose another folder")
    if folder.is_dir() and not force and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; choose another folder or pass --force")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: cannot be written, {existing} is read-only for this user; choose another folder")


def default_output(workload: Workload, plan: Plan) -> Path:
    """`runs/gpt-dp2-20250131-142501`: sorts by workload, then plan, then time."""
    text = "".join(letter for letter in str(plan).replace(",", "-") if letter.isalnum() or letter in "-_")
    return Path("runs") / f"{workload.name}-{text}-{datetime.now():%Y%m%d-%H%M%S}"
