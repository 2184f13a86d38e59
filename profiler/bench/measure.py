"""measure_machine: everything that a device file holds, in one go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from ...datasets.environment import environment, usable_cores
from ...datasets.machine import Machine
from ..launch import launch
from .peaks import peaks

WORKER = "foretrace.profiler.bench.worker"
_TIMING = ("time_s", "spread", "count")
Progress = Callable[[str, int], None]
"""(what is being measured, how many of it are done)"""


def measure_machine(
    *, quick: bool, name: str | None = None, progress: Progress | None = None, only: list[str] | None = None
) -> Machine:
    """Measure this machine: ops alone on all cores, alone on one and on all cores at once, collectives, host time.

    About two minutes when `quick`, ten or more else. `only` limits the sweep to operators whose name contains one of
    the words (for tests). Raises `RunError` when a measuring process dies.
    """
    started = time.monotonic()
    cores = usable_cores().usable

    def run(job: str, what: str, world_size: int, **task: Any) -> list[dict[str, Any]]:
        return launch(
            WORKER,
            {"job": job, "quick": quick, "only": only, **task},
            world_size=world_size,
            threads=max(1, cores // world_size),
            what=f"measuring {what}",
            progress=(lambda done: progress(what, done)) if progress else None,
        )

    budget = {"point_s": 0.015 if quick else 0.08, "extra_s": 8.0 if quick else 90.0}
    threads = [cores, 1] if cores > 1 else [1]
    what = f"ops alone and on {cores} cores at once" if cores > 1 else "ops"
    sweep = run("points", what, cores, threads=threads, **budget)
    ops = merge([result["rows"] for result in sweep])
    collectives: list[dict[str, Any]] = []
    for ranks in (2,) if quick else sorted({2, min(4, 2 * cores)}):
        part = run("collectives", f"collectives of {ranks} ranks", ranks, collective_s=0.06 if quick else 0.3)
        collectives += part[0]["rows"]
    host = run("host", "host time", 1)[0]["rows"]
    host += run("wrappers", "host time of wrappers", 2)[0]["rows"]
    facts = environment()
    device = str(facts.get("cpu_model") or "cpu")
    frame = pd.DataFrame(ops)
    source = f"foretrace profile machine, torch {facts.get('torch')}"
    frame = frame.assign(phase=None, device=device, rank=None, kernel=None, software=facts.get("torch"), source=source)
    return Machine(
        name=name or device,
        facts={**facts, "usable_cores": cores, "mood": sweep[0]["mood"]},
        ops=frame,
        collectives=pd.DataFrame(collectives).assign(rank=None),
        host=pd.DataFrame(host),
        peaks=peaks(frame),
        quick=quick,
        seconds_taken_s=time.monotonic() - started,
    )


def merge(per_rank: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per point and setting from the rows of the ranks that ran in it: mean of medians, worst spread."""
    merged: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for rows in per_rank:
        for row in rows:
            merged.setdefault(tuple(row[field] for field in row if field not in _TIMING), []).append(row)
    for rows in merged.values():
        assert len(rows) == rows[0]["processes"], f"{rows[0]}: {len(rows)} ranks ran it"
    return [
        {
            **{field: value for field, value in rows[0].items() if field != "point"},
            "time_s": sum(row["time_s"] for row in rows) / len(rows),
            "spread": max(row["spread"] for row in rows),
        }
        for rows in merged.values()
    ]
