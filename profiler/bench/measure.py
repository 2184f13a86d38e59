"""measure_machine: everything that a device file holds, in one go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from ...datasets.environment import environment, usable_cores
from ...datasets.machine import Machine
from ..launch import launch

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

    from .sweep import merge

    budget = {"point_s": 0.02 if quick else 0.08, "extra_s": 8.0 if quick else 90.0}
    threads = [cores, 1] if cores > 1 else [1]
    ops = merge([run("points", "ops alone", 1, threads=threads, **budget)[0]["rows"]])
    if cores > 1:
        together = run("points", f"ops on {cores} processes at once", cores, threads=[1], **budget)
        ops += merge([result["rows"] for result in together])
    collectives: list[dict[str, Any]] = []
    for ranks in (2,) if quick else sorted({2, min(4, 2 * cores)}):
        part = run("collectives", f"collectives of {ranks} ranks", ranks, collective_s=0.06 if quick else 0.3)
        collectives += part[0]["rows"]
    host = run("host", "host time", 1)[0]["rows"]
    latency_s = {
        row["kind"]: row["time_s"]
        for row in reversed(collectives)
        if row["ranks"] == 2 and row["compute"] == "idle" and row["bytes"] <= 4096
    }
    host += run("wrappers", "host time of wrappers", 2, latency_s=latency_s)[0]["rows"]
    facts = environment()
    device = str(facts.get("cpu_model") or "cpu")
    frame = pd.DataFrame(ops)
    source = f"foretrace profile machine, torch {facts.get('torch')}"
    frame = frame.assign(phase=None, device=device, rank=None, kernel=None, software=facts.get("torch"), source=source)
    return Machine(
        name=name or str(facts.get("hostname") or device),
        facts={**facts, "usable_cores": cores},
        ops=frame,
        collectives=pd.DataFrame(collectives).assign(rank=None),
        host=pd.DataFrame(host),
        peaks=_peaks(frame),
        quick=quick,
        seconds_taken_s=time.monotonic() - started,
    )


def _peaks(ops: pd.DataFrame) -> dict[str, float]:
    """Best measured rates: GEMM FLOP/s by dtype and threads, and bytes/s of copies in and out of cache."""
    peaks: dict[str, float] = {}
    for (threads, processes), rows in ops.groupby(["threads", "processes"]):
        where = f"{threads}_thread{'s' if threads > 1 else ''}" + (f"_{processes}_processes" if processes > 1 else "")
        gemms = rows[rows.op.isin(["linear", "matmul"])]
        for dtype, some in gemms.groupby("dtype"):
            peaks[f"{dtype}_flops_per_s_{where}"] = float((some.flops / some.time_s).max())
        copies = rows[rows.op.isin(["copy.clone", "copy.copy"]) & (rows.dtype == "fp32")]
        total = copies.bytes_read + copies.bytes_written
        for label, chosen in (("cache", (total > 1 << 16) & (total <= 1 << 20)), ("memory", total >= 1 << 25)):
            if chosen.any():
                peaks[f"copy_{label}_bytes_per_s_{where}"] = float((total / copies.time_s)[chosen].median())
    return peaks
