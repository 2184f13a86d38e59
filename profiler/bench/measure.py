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
Progress = Callable[[str, int], None]
"""(what is being measured, how many of it are done)"""


def measure_machine(
    *, quick: bool, name: str | None = None, progress: Progress | None = None, only: list[str] | None = None
) -> Machine:
    """Measure this machine: ops alone on all cores and on one, on all cores at once, collectives, host time.

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
    alone = run("points", "ops alone", 1, threads=threads, **budget)[0]
    ops = merge([alone["rows"]])
    if cores > 1:
        together = run("points", f"ops on {cores} processes at once", cores, threads=[1], **budget)
        ops += merge([result["rows"] for result in together])
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
        facts={**facts, "usable_cores": cores, "mood": alone["mood"]},
        ops=frame,
        collectives=pd.DataFrame(collectives).assign(rank=None),
        host=pd.DataFrame(host),
        peaks=peaks(frame),
        quick=quick,
        seconds_taken_s=time.monotonic() - started,
    )


def merge(per_rank: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per point from the rows of the ranks that ran it together: the mean of their medians."""
    merged = []
    for rows in zip(*per_rank, strict=True):
        row = dict(rows[0])
        assert all(other["point"] == row["point"] for other in rows), "ranks measured in different orders"
        del row["point"]
        row["time_s"] = sum(other["time_s"] for other in rows) / len(rows)
        row["spread"] = max(other["spread"] for other in rows)
        merged.append(row)
    return merged
