"""predict: workload, plan and cluster in, Prediction out. The whole way through in one place.

trace -> programs -> price unique ops -> lower to a TaskGraph -> simulate -> read everything off it
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.errors import InputError, MissingExtraError, PlanError
from ..datasets.plan import Plan
from ..datasets.profile import Profile
from ..datasets.version import __version__
from .cost.calibration import Calibration
from .cost.intervals import interval, mood_of, trust
from .cost.measured import op_of_row
from .cost.pricing import Pricer
from .engine import Timeline, memory_timelines, parts, simulate
from .hardware.cluster import Cluster
from .plan.lowering import Lowered, lower
from .prediction import OpCost, Prediction, StageMemory
from .workload.stage import StagePrograms

PARTS = ("forward", "backward", "optimizer", "communication", "host", "bubble")


def predict(
    workload: Any,
    plan: Plan | str | None = None,
    cluster: Cluster | str = "this",
    *,
    from_profile: Profile | str | Path | None = None,
    settings: dict[str, Any] | None = None,
) -> Prediction:
    """Predict one training step.

    `workload` is a `Workload`, a built-in name or `file.py:factory` (then `settings` go to its factory); `plan` a
    `Plan` or its text (`dp=2,micro_batches=4`); `cluster` a `Cluster`, `this`, or a device file. `from_profile` is a
    measured run of the same model (another batch or plan will do) that calibrates the prices.

    Raises `PlanError` for plans that do not divide, `UnsupportedError` for what cannot be traced or priced,
    `InputError` for files that cannot be read.
    """
    workload = _workload(workload, settings or {})
    plan = Plan.parse(plan) if isinstance(plan, str) else plan or Plan()
    cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    _check_placement(plan, cluster)
    calibration, reference = None, None
    if from_profile is not None:
        profile = from_profile if isinstance(from_profile, Profile) else Profile.load(from_profile)
        calibration = calibrate(profile, workload, cluster)
        reference = calibration.reference
    return _answer(workload, plan, cluster, _trace(workload, plan), calibration, reference)


def calibrate(profile: Profile, workload: Any, cluster: Cluster) -> Calibration:
    """What a measured run says about the prices of `workload`'s ops on `cluster`.

    Raises `InputError` when the profile has no op rows, no finished step or no plan.
    """
    where = profile.manifest.get("run_id", "profile")
    if not len(profile.ops) or profile.step_time_s is None or profile.plan is None:
        raise InputError(
            f"calibrating with {where}: needs op rows, finished steps and a plan; it has {len(profile.ops)} op rows, "
            f"step time {profile.step_time_s} ({profile.step_time_reason}) and plan {profile.plan}"
        )
    workload, plan = _what_ran(profile, workload)
    threads = plan.threads_per_rank(cluster.cores)
    bare = Pricer(cluster, threads=threads)
    ops = profile.ops[(profile.ops["rank"].fillna(0) == 0) & profile.ops.time_s.notna()]
    rows = [
        (
            op_of_row(row),
            str(row.phase or "forward"),
            float(row.time_s),
            int(row.count) if row.count == row.count else 1,
        )
        for row in ops.itertuples(index=False, name="Row")
    ]
    calibration = Calibration.from_ops(rows, lambda op, phase: bare.price(op, phase).time_s, reference=str(where))
    stages = _trace(workload, plan)
    cold_s, _ = _work_and_waits(_answer(workload, plan, cluster, stages, None, None))
    work_s, waits_s = _work_and_waits(_answer(workload, plan, cluster, stages, calibration, None))
    ran_s = profile.step_time_s - waits_s
    if min(cold_s, work_s, ran_s) > 0:
        # How the ops differ among themselves is believed; how the whole differs, as far as the machine keeps its pace.
        believed_s = cold_s * (ran_s / cold_s) ** trust(mood_of(cluster.machine.facts))
        calibration.step_factor = float(np.clip(believed_s / work_s, 0.4, 2.5))
    return calibration


def _work_and_waits(prediction: Prediction) -> tuple[float, float]:
    """Seconds of a step in which ranks work, and those in which they communicate or wait."""
    waits_s = prediction.parts_s["communication"] + prediction.parts_s["bubble"]
    return prediction.step_time_s - waits_s, waits_s


def _what_ran(profile: Profile, workload: Any) -> tuple[Any, Plan]:
    """The workload and plan of a run: as its manifest names them, else the caller's workload (a script names none)."""
    assert profile.plan is not None
    plan = profile.plan
    if plan.global_batch is None and isinstance(batch := profile.manifest.get("global_batch"), int):
        plan = plan.with_(global_batch=batch)
    named = profile.manifest.get("workload") or {}
    if named.get("reference") == workload.reference and named.get("settings") not in (None, dict(workload.settings)):
        workload = _workload(workload.reference, dict(named["settings"]))
    return workload, plan


def _workload(workload: Any, settings: dict[str, Any]) -> Any:
    if not isinstance(workload, str):
        return workload
    try:
        from ..datasets.workloads import load
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", extra="torch", purpose=f"tracing workload {workload}") from error
    return load(workload, **settings)


def _trace(workload: Any, plan: Plan) -> list[StagePrograms]:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", extra="torch", purpose=f"tracing workload {workload}") from error
    from .workload.traced import trace

    return trace(workload, plan)


def _check_placement(plan: Plan, cluster: Cluster) -> None:
    threads = plan.threads_per_rank(cluster.cores)
    if threads > cluster.cores:
        raise PlanError(
            f"plan {plan}: threads({threads}) per rank, but {cluster.machine.name} has {cluster.cores} cores"
        )


def _answer(
    workload: Any, plan: Plan, cluster: Cluster, stages: list[StagePrograms], calibration: Calibration | None,
    reference: str | None,
) -> Prediction:  # fmt: skip
    threads = plan.threads_per_rank(cluster.cores)
    pricer = Pricer(cluster, threads=threads, calibration=calibration)
    lowered = lower(stages, plan, pricer)
    simulated = simulate(lowered.graph, lowered.duration_s)
    step_time_s = float(simulated.makespan_s)
    low_s, high_s = interval(
        lowered, step_time_s, calibrated=calibration is not None, mood=mood_of(cluster.machine.facts)
    )
    found = parts(lowered.graph, simulated)
    named = {name: found.pop(name, 0.0) for name in PARTS}
    named["bubble"] += found.pop("idle", 0.0)
    named["forward"] += sum(found.values())  # ops outside any phase
    memory = [
        StageMemory(timeline.space, timeline.peak_bytes, timeline.parts_bytes, timeline.peak_at_s)
        for timeline in memory_timelines(lowered.graph, simulated).values()
    ]
    members = plan.world_size // plan.pp
    flops = members * sum(_flops(stage, plan) for stage in stages)
    costs = _op_costs(lowered)
    global_batch = workload.global_batch_of(plan)
    return Prediction(
        workload=str(workload),
        plan=plan.with_(global_batch=global_batch).to_dict(),
        cluster=cluster.machine.name,
        step_time_s=step_time_s,
        low_s=low_s,
        high_s=high_s,
        parts_s=named,
        memory=memory,
        memory_limit_bytes=cluster.memory_bytes,
        flops=flops,
        **_mfu(flops, step_time_s, plan, cluster, threads),
        source_share=_shares(lowered.source_s),
        out_of_range={name: seconds / step_time_s for name, seconds in _largest(lowered.out_of_range).items()},
        unknown_ops=_unknown(stages),
        inputs={
            "device_file": cluster.machine.content_hash,
            "calibration": reference,
            "calibration_step_factor": calibration.step_factor if calibration else None,
            "foretrace": __version__,
            "torch": _version("torch"),
            "settings": dict(workload.settings),
            "threads_per_rank": threads,
            "ranks_per_stage": members,
        },
        samples_per_step=global_batch,
        ops=costs,
        advice=_advice(costs, lowered),
        _timeline=lambda: Timeline.of(lowered.graph, simulated),
    )


def _flops(stage: StagePrograms, plan: Plan) -> float:
    if stage.step.entries:
        return stage.step.flops
    return plan.micro_batches * (stage.forward.flops + stage.backward.flops) + stage.optimizer.flops


def _mfu(flops: float, step_time_s: float, plan: Plan, cluster: Cluster, threads: int) -> dict[str, Any]:
    dtype = "bf16" if plan.precision == "bf16" else "fp32"
    per_rank = cluster.device(threads).flops_per_s.get(dtype)
    if not per_rank:
        return {"mfu": None, "mfu_convention": f"no measured {dtype} peak in the device file"}
    # Ranks that share cores share the peak too.
    ranks = min(plan.world_size, max(1, cluster.cores // threads))
    return {
        "mfu": flops / step_time_s / (per_rank * ranks),
        "mfu_convention": f"traced FLOPs, recompute counted, causal half; {dtype} GEMM peak of {ranks} rank(s)",
    }


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {
        name: seconds.get(name, 0.0) / total if total else 0.0 for name in ("measured", "learned", "analytic", "host")
    }


def _largest(seconds: dict[str, float], most: int = 20) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda item: -item[1])[:most])


def _unknown(stages: list[StagePrograms]) -> dict[str, int]:
    named: dict[str, int] = {}
    for stage in stages:
        for program in (stage.step, stage.forward, stage.backward, stage.optimizer):
            for name, calls in program.unknown_ops().items():
                named[name] = named.get(name, 0) + calls
    return named


def _op_costs(lowered: Lowered) -> list[OpCost]:
    costs = []
    for row, (op, phase, time_s, spread, source) in enumerate(lowered.rows):
        calls = lowered.calls.get(row, 0)
        dims = "×".join(str(size) for size in (op.b, op.m, op.n, op.k) if size)
        costs.append(OpCost(op.op, op.name, phase, dims, op.dtype, calls, time_s, time_s * calls, spread, source))
    return sorted(costs, key=lambda cost: -cost.total_s)


def _advice(costs: list[OpCost], lowered: Lowered) -> str:
    """The one measurement that would narrow the interval most: the family whose error weighs most."""
    if not lowered.variance_s2:
        return ""
    family = max(lowered.variance_s2, key=lambda name: lowered.variance_s2[name])
    share = lowered.variance_s2[family] / max(sum(lowered.variance_s2.values()), 1e-30)
    worst = max(
        (c for c in costs if c.op.partition(".")[0] == family), key=lambda c: c.total_s * c.spread, default=None
    )
    if worst is None:
        return f"measuring {family} again (foretrace profile machine) would remove {share:.0%} of the variance"
    return (
        f"timing {worst.name} at {worst.dims} {worst.dtype} ({worst.phase}, {worst.calls} calls, "
        f"{worst.total_s * 1e3:.1f} ms of the step) would narrow the interval most: {family} holds {share:.0%} of its "
        "variance"
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
