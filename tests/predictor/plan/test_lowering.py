"""Lowering against hand arithmetic, with prices that are plain numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from foretrace.datasets.errors import UnsupportedError
from foretrace.datasets.ops import Op
from foretrace.datasets.plan import Plan
from foretrace.predictor.cost.collectives import CollectivePrice
from foretrace.predictor.cost.host import HostCosts
from foretrace.predictor.cost.pricing import Price
from foretrace.predictor.engine import memory_timelines, parts, simulate
from foretrace.predictor.plan.lowering import MIB, lower
from foretrace.predictor.workload.program import Entry, Kind, Program
from foretrace.predictor.workload.stage import StagePrograms


class FlatPricer:
    """Ops cost their FLOPs in seconds, collectives a millisecond per MiB, host work what it is told."""

    def __init__(self, *, cores: int = 2, threads: int = 1, memory_use: float = 0.0, host_s: float = 0.0) -> None:
        self.cluster = SimpleNamespace(cores=cores)
        self.threads = threads
        self.calibration = None
        self.host = HostCosts({"forward": host_s, "backward": host_s, "optimizer": host_s})
        self._memory_use = memory_use

    def price(self, op: Op, phase: str) -> Price:
        if op.family in ("elementwise", "copy"):
            return Price(0.0, 0.0, "measured", True, 0.0)
        return Price(op.flops, 0.1, "measured", True, self._memory_use)

    def collective(self, collective) -> CollectivePrice | None:
        if collective.kind == "all_to_all":
            return None
        return CollectivePrice(collective.bytes / MIB * 1e-3, 0.1, 0.0, "measured")


def program(*work: tuple[str, float]) -> Program:
    made = Program()
    for phase, seconds in work:
        made.add_op(Op(op="matmul", name="aten.mm", direction="fwd", dtype="fp32", m=1, flops=seconds), phase)
    return made


def makespan_s(lowered) -> float:
    return float(simulate(lowered.graph, lowered.duration_s).makespan_s)


def test_one_process_is_the_sum_of_its_ops_and_host_work():
    stage = StagePrograms(step=program(("forward", 1.0), ("backward", 2.0), ("optimizer", 0.5)))
    lowered = lower([stage], Plan(), FlatPricer(host_s=0.1))
    # 1 + 2 + 0.5 and host work of 0.1 before each of three ops.
    assert makespan_s(lowered) == pytest.approx(3.8)
    found = parts(lowered.graph, simulate(lowered.graph, lowered.duration_s))
    assert found == pytest.approx({"host": 0.3, "forward": 1.0, "backward": 2.0, "optimizer": 0.5})
    assert sum(lowered.source_s.values()) == pytest.approx(3.8)


def test_a_collective_that_is_waited_for_is_exposed_and_one_that_overlaps_is_not():
    blocking = program(("forward", 1.0))
    from foretrace.predictor.workload.program import Collective

    blocking.add_collective(Collective("all_reduce", 1000 * MIB, 2, "tp"), "forward")
    blocking.add_op(Op(op="matmul", name="aten.mm", direction="fwd", dtype="fp32", flops=3.0), "forward")
    assert makespan_s(lower([StagePrograms(step=blocking)], Plan(tp=2), FlatPricer())) == pytest.approx(5.0)

    overlapped = program(("forward", 1.0))
    start = overlapped.add_collective(Collective("all_reduce", 1000 * MIB, 2, "tp"), "forward", wait=False)
    overlapped.add_op(Op(op="matmul", name="aten.mm", direction="fwd", dtype="fp32", flops=3.0), "forward")
    overlapped.add_wait(start, "forward")
    overlapped.add_op(Op(op="matmul", name="aten.mm", direction="fwd", dtype="fp32", flops=0.5), "forward")
    assert makespan_s(lower([StagePrograms(step=overlapped)], Plan(tp=2), FlatPricer())) == pytest.approx(4.5)


def test_gradients_fill_buckets_of_one_and_twenty_five_mib():
    step = program(("backward", 1.0))
    for _ in range(30):
        step.entries.append(Entry(Kind.READY, 2 * MIB, "backward"))
    step.add_op(Op(op="matmul", name="aten.mm", direction="fwd", dtype="fp32", flops=0.25), "optimizer")
    lowered = lower([StagePrograms(step=step, ddp=True)], Plan(dp=2), FlatPricer())
    graph = lowered.graph
    reduces = [
        lowered.duration_s[t] for t in range(len(graph)) if graph.categories[graph.category[t]] == "communication"
    ]
    # 2 MiB are over the first limit at once; then 13 gradients (26 MiB), 13, and the 3 that remain.
    assert reduces == pytest.approx([0.002, 0.026, 0.026, 0.006])
    assert makespan_s(lowered) == pytest.approx(1.0 + 0.060 + 0.25)


def test_ranks_that_share_memory_bandwidth_slow_each_other():
    # Two ranks that each take 0.75 of the bandwidth run at 1 / 1.5 of their speed.
    stage = StagePrograms(step=program(("forward", 1.0)))
    assert makespan_s(lower([stage], Plan(dp=2), FlatPricer(memory_use=0.75))) == pytest.approx(1.5)
    assert makespan_s(lower([stage], Plan(), FlatPricer(memory_use=0.75))) == pytest.approx(1.0)


def test_more_threads_than_cores_share_the_cores():
    stage = StagePrograms(step=program(("forward", 1.0)))
    assert makespan_s(lower([stage], Plan(dp=4), FlatPricer(cores=2))) == pytest.approx(2.0)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_equal_stages_take_the_closed_form(name):
    # (m + p - 1)(F + B) + optimizer, messages of 0 bytes.
    stages = [
        StagePrograms(
            forward=program(("forward", 1.0)),
            backward=program(("backward", 2.0)),
            optimizer=program(("optimizer", 0.5)),
        )
        for _ in range(3)
    ]
    plan = Plan(pp=3, micro_batches=5, schedule=name)
    assert makespan_s(lower(stages, plan, FlatPricer(cores=3))) == pytest.approx((5 + 3 - 1) * 3.0 + 0.5)


def test_activations_of_a_pipeline_stage():
    def stage() -> StagePrograms:
        forward, backward = program(("forward", 1.0)), program(("backward", 2.0))
        forward.entries.append(Entry(Kind.ALLOC, 100, "forward", category="activations"))
        backward.entries.append(Entry(Kind.FREE, 100, "backward", category="activations"))
        forward.resident_bytes = {"parameters": 7}
        return StagePrograms(forward=forward, backward=backward, optimizer=program(("optimizer", 0.5)))

    peaks = {}
    for name in ("gpipe", "1f1b"):
        lowered = lower([stage(), stage()], Plan(pp=2, micro_batches=4, schedule=name), FlatPricer())
        timelines = memory_timelines(lowered.graph, simulate(lowered.graph, lowered.duration_s))
        peaks[name] = [timelines[f"stage {index}"].parts_bytes["activations"] for index in range(2)]
    # GPipe holds all four micro-batches on both stages; 1F1B two on the first and one on the last.
    assert peaks == {"gpipe": [400, 400], "1f1b": [200, 100]}


def test_a_collective_without_a_price_is_refused_by_name():
    from foretrace.predictor.workload.program import Collective

    step = program(("forward", 1.0))
    step.add_collective(Collective("all_to_all", MIB, 2, "tp"), "forward")
    with pytest.raises(UnsupportedError, match="all_to_all"):
        lower([StagePrograms(step=step)], Plan(tp=2), FlatPricer())
