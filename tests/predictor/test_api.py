"""predict as a whole, on a device file that is part of a real sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foretrace.datasets.errors import InputError, PlanError, UnsupportedError
from foretrace.datasets.machine import Machine
from foretrace.datasets.plan import Plan
from foretrace.datasets.profile import Profile
from foretrace.datasets.schemas import op_row
from foretrace.datasets.store import RunWriter
from foretrace.datasets.workloads import load
from foretrace.predictor import Cluster, Prediction, predict
from foretrace.predictor.cost.pricing import Pricer
from foretrace.predictor.workload.traced import trace

CLUSTER = Cluster(Machine.load(Path(__file__).parents[1] / "data" / "machine.json"))
GPT = load("gpt", layers=2, width=128, heads=4, seq=64, vocab=512, batch=8)
PLANS = ["single", "threads=1", "dp=2", "fsdp=2", "tp=2", "pp=2,micro_batches=4", "pp=2,micro_batches=2,schedule=gpipe",
         "micro_batches=2", "recompute=full", "precision=bf16", "dp=2,fsdp=2"]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_parts_sum_and_nothing_is_unknown(plan):
    prediction = predict(GPT, plan, CLUSTER)
    assert sum(prediction.parts_s.values()) == pytest.approx(prediction.step_time_s)
    assert prediction.low_s < prediction.step_time_s < prediction.high_s
    assert sum(prediction.source_share.values()) == pytest.approx(1.0)
    assert prediction.unknown_ops == {}
    for stage in prediction.memory:
        assert sum(stage.parts_bytes.values()) == stage.peak_bytes > 0
    assert (prediction.parts_s["communication"] > 0) == (Plan.parse(plan).world_size > 1)
    assert prediction.advice
    assert Prediction.from_dict(json.loads(json.dumps(prediction.to_dict()))).step_time_s == prediction.step_time_s


def test_more_samples_take_longer_and_more_memory():
    predictions = [predict(GPT, f"global_batch={batch}", CLUSTER) for batch in (4, 8, 16, 32)]
    times = [prediction.step_time_s for prediction in predictions]
    peaks = [prediction.peak_memory_bytes for prediction in predictions]
    assert times == sorted(times) and peaks == sorted(peaks)


def test_recompute_trades_time_for_memory():
    plain, again = (predict(GPT, f"global_batch=64,recompute={how}", CLUSTER) for how in ("none", "full"))
    assert again.step_time_s > plain.step_time_s
    assert again.peak_memory_bytes < plain.peak_memory_bytes


def test_sharding_state_saves_memory():
    assert predict(GPT, "fsdp=2", CLUSTER).peak_memory_bytes < predict(GPT, "dp=2", CLUSTER).peak_memory_bytes


def test_the_timeline_ends_with_the_step():
    prediction = predict(GPT, "dp=2", CLUSTER)
    assert prediction.timeline().makespan_s == prediction.step_time_s
    assert "rank dp" in prediction.timeline().streams


def _run(tmp_path, factor: float, ran=GPT, batch: int = 4, **facts) -> Profile:
    """A run of `ran` whose every op took `factor` times its price, as did the step; `facts` go to its manifest."""
    plan = Plan(global_batch=batch)
    threads = plan.threads_per_rank(CLUSTER.cores)
    pricer = Pricer(CLUSTER, threads=threads)
    step_s = predict(ran, plan, CLUSTER).step_time_s
    with RunWriter.create(tmp_path / "run", kind="profile") as writer:
        program = trace(ran, plan)[0].step
        calls = {}
        for entry in program.entries:
            if entry.kind == 0 and program.ops[entry.index].family != "view":
                key = (program.ops[entry.index], entry.phase)
                calls[key] = calls.get(key, 0) + 1
        rows = [
            op_row(
                op, phase=phase, time_s=factor * pricer.price(op, phase).time_s, count=count, threads=threads, rank=0
            )
            for (op, phase), count in calls.items()
        ]
        writer.write("ops", rows)
        for step in range(3):
            writer.step({"step": step, "start_s": step, "end_s": step + factor * step_s, "time_s": factor * step_s})
        writer.manifest(**{"plan": plan.to_dict(), "world_size": 1, "workload": {"reference": "gpt"}, **facts})
    return Profile.load(tmp_path / "run")


def test_calibration_carries_what_a_run_showed_to_another_batch(tmp_path):
    profile = _run(tmp_path, 1.5)
    cold = predict(GPT, "global_batch=16", CLUSTER)
    calibrated = predict(GPT, "global_batch=16", CLUSTER, from_profile=profile)
    # Everything took half as long again, so a larger batch will too.
    assert calibrated.step_time_s / cold.step_time_s == pytest.approx(1.5, rel=0.06)
    assert (calibrated.high_s / calibrated.low_s) < (cold.high_s / cold.low_s)
    assert calibrated.inputs["calibration"] == profile.manifest["run_id"]


def test_a_run_on_a_moody_machine_is_believed_in_part(tmp_path):
    machine = Machine.load(Path(__file__).parents[1] / "data" / "machine.json")
    # 0.09² / (0.09² + 2 × mood²) = 1/2.
    machine.facts = {**machine.facts, "mood": 0.09 / 2**0.5}
    moody = Cluster(machine)
    cold = predict(GPT, "global_batch=16", moody)
    calibrated = predict(GPT, "global_batch=16", moody, from_profile=_run(tmp_path, 1.5))
    assert calibrated.step_time_s / cold.step_time_s == pytest.approx(1.5**0.5, rel=0.06)
    steady = predict(GPT, "global_batch=16", CLUSTER)
    assert cold.step_time_s == steady.step_time_s
    assert cold.high_s / cold.low_s > steady.high_s / steady.low_s


def test_a_run_that_agrees_changes_nothing(tmp_path):
    cold = predict(GPT, "global_batch=16", CLUSTER)
    calibrated = predict(GPT, "global_batch=16", CLUSTER, from_profile=_run(tmp_path, 1.0))
    assert calibrated.step_time_s == pytest.approx(cold.step_time_s, rel=1e-6)


def test_a_run_is_compared_with_what_its_manifest_says_ran(tmp_path):
    """Not with the caller's workload: the run was four times as deep and at twice the batch its plan leaves open."""
    deep = load("gpt", layers=8, width=128, heads=4, seq=64, vocab=512, batch=8)
    profile = _run(
        tmp_path, 1.0, deep, 16, plan=Plan().to_dict(), global_batch=16,
        workload={"reference": deep.reference, "settings": dict(deep.settings)},
    )  # fmt: skip
    calibrated = predict(GPT, "global_batch=16", CLUSTER, from_profile=profile)
    assert calibrated.inputs["calibration_step_factor"] == pytest.approx(1.0, rel=1e-6)


def test_calibration_without_ops_says_what_is_missing(tmp_path):
    with RunWriter.create(tmp_path / "empty", kind="profile") as writer:
        writer.step({"step": 0, "start_s": 0, "end_s": 1, "time_s": 1.0})
        writer.manifest(plan=Plan().to_dict())
    with pytest.raises(InputError, match="0 op rows"):
        predict(GPT, "single", CLUSTER, from_profile=tmp_path / "empty")


def test_plans_that_cannot_be(tmp_path):
    with pytest.raises(PlanError, match="remainder"):
        predict(GPT, "dp=3", CLUSTER)
    with pytest.raises(PlanError, match="cores"):
        predict(GPT, "threads=99", CLUSTER)
    with pytest.raises(UnsupportedError, match="together"):
        predict(GPT, "tp=2,pp=2,micro_batches=2", CLUSTER)
    with pytest.raises(InputError, match="no such device file"):
        predict(GPT, "single", str(tmp_path / "absent.json"))
