"""One rank of a profiled workload: build, warm up, time steps with nothing watching, then watch a few, then weigh one.

Started by `profiler.workload` through `launch`; `python -m foretrace.profiler.training` is not for people.
"""

from __future__ import annotations

import time
from typing import Any

from ..datasets.environment import environment
from ..datasets.plan import Plan
from ..datasets.store import RunWriter
from ..datasets.workloads import load
from .process import process_peak_bytes
from .rank import RankContext, rank_main

STEP_RULE = "one call of the workload's own loop: all micro-batches, backward, optimizer step, gradients dropped"


def train(context: RankContext) -> None:
    """Everything one rank does; the task's fields are those that `run_workload` puts there."""
    task = context.task
    plan = Plan.from_dict(task["plan"])
    # OMP_NUM_THREADS was set before this process began; saying it again covers builds without OpenMP.
    import torch

    torch.set_num_threads(context.threads)
    context.init_process_group()
    from ..datasets.workloads.step import make_step

    workload = load(task["reference"], **task["settings"])
    step = make_step(workload, plan, rank=context.rank, seed=task["seed"])
    run = _Run(context, step)
    # Before the folder is made: what a wrong plan or workload breaks leaves nothing behind.
    run.warm_up(task["warmup"])
    context.barrier()
    with RunWriter.create(
        task["output"], kind="profile", rank=context.rank, force=task["force"], run_id=task["run_id"]
    ) as writer:
        writer.manifest(
            world_size=context.world_size,
            workload={"reference": workload.reference, "name": workload.name, "settings": dict(workload.settings)},
            global_batch=workload.global_batch_of(plan),
            plan=plan.to_dict(),
            command=task["command"],
            step_rule=STEP_RULE,
            steps_planned=task["steps"] + task["profile_steps"],
            seed=task["seed"],
            environment=environment() | {"threads": context.threads},
        )
        run.writer = writer
        try:
            run.timed(task["steps"])
            if task["profile_steps"]:
                run.watched(task["profile_steps"], task["channels"])
            if "memory" in task["channels"]:
                run.weighed(resizable=plan.fsdp > 1)
        finally:
            writer.manifest(
                steps_recorded=run.recorded, loss_first=run.loss_first, loss_last=run.loss_last, channels=run.channels
            )
    context.result(steps=run.recorded)


class _Run:
    """The phases of one rank's run, in the order in which they are called."""

    def __init__(self, context: RankContext, step: Any) -> None:
        self._context = context
        self.writer: Any = None
        self._step = step
        self._origin_s = context.task["clock_origin_s"]
        self._process_peak_bytes: int | None = None
        self.channels: dict[str, dict[str, str | None]] = {}
        self.recorded = 0
        self.loss_first: float | None = None
        self.loss_last: float | None = None

    def warm_up(self, steps: int) -> None:
        """Steps that nobody counts: allocator, thread pools and connections settle."""
        for index in range(steps):
            self._step.run()
            self._context.progress(index + 1)

    def timed(self, steps: int) -> None:
        """Steps with nothing but two clock reads around each; rows are written between them."""
        self._context.barrier()
        loss = None
        for _ in range(steps):
            start_s = time.perf_counter()
            loss = self._step.run()
            end_s = time.perf_counter()
            self._record(start_s, end_s, profiled=False)
            if self.recorded == 1:
                self.loss_first = _number(loss)
        self.loss_last = _number(loss)
        # Now, before profilers add to it.
        self._process_peak_bytes = process_peak_bytes()

    def watched(self, steps: int, channels: list[str]) -> None:
        """Steps inside the active window of the channels; the storages are weighed in a step of their own."""
        from .session import Session

        self._context.barrier()
        session = Session(
            self.writer,
            channels=[name for name in channels if name != "memory"],
            wait=0,
            warmup=0,
            active=steps,
            origin_s=self._origin_s,
            record_steps=False,
        )
        try:
            for _ in range(steps):
                start_s = time.perf_counter()
                self._step.run()
                end_s = time.perf_counter()
                session.step()
                self._record(start_s, end_s, profiled=True)
        finally:
            session.close(status=None)
            self.channels |= session.channels

    def weighed(self, *, resizable: bool) -> None:
        """One more step, not timed, whose tensor storages are counted."""
        from .storage import METHOD, StorageTracker

        rank, process_bytes = self._context.rank, self._process_peak_bytes
        self._context.barrier()
        with StorageTracker(self._step.module, self._step.optimizer, resizable=resizable) as tracker:
            self._step.run()
        rows = [
            {"rank": rank, "category": category, "peak_bytes": peak, "reason": None}
            for category, peak in tracker.peak().items()
        ]
        reason = None if process_bytes is not None else "this system does not tell a process its peak resident size"
        rows.append({"rank": rank, "category": "process", "peak_bytes": process_bytes, "reason": reason})
        self.writer.write("memory", rows)
        self.channels["memory"] = {"status": "recorded", "reason": None}
        self.writer.manifest(
            memory_method={
                "total": METHOD,
                "process": "highest resident size of the rank's process up to its last timed step",
            }
        )

    def _record(self, start_s: float, end_s: float, *, profiled: bool) -> None:
        self.writer.step(
            {
                "rank": self._context.rank,
                "step": self.recorded,
                "start_s": start_s - self._origin_s,
                "end_s": end_s - self._origin_s,
                "time_s": end_s - start_s,
                "skipped": False,
                "profiled": profiled,
                "hook_s": None,
            }
        )
        self.recorded += 1
        self._context.progress(self._context.task["warmup"] + self.recorded)


def _number(loss: Any) -> float | None:
    """The loss as a number; None on a pipeline stage without one, and for a loss that is not finite."""
    if loss is None:
        return None
    value = float(loss)
    return value if abs(value) < float("inf") else None


if __name__ == "__main__":
    rank_main(train)
