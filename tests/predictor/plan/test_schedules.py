"""Every schedule: a valid order, and the closed form of its bubble and of the activations it holds."""

from __future__ import annotations

import numpy as np
import pytest
from foretrace.datasets.errors import PlanError
from foretrace.predictor.engine import GraphBuilder, simulate
from foretrace.predictor.plan.schedules import SCHEDULES, schedule
from hypothesis import given, settings
from hypothesis import strategies as st

pipelines = st.tuples(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 6), st.integers(1, 12))


@given(pipelines)
def test_every_micro_batch_runs_forward_then_backward_once_on_every_stage(pipeline):
    name, stages, micro_batches = pipeline
    orders = schedule(name, stages, micro_batches)
    assert len(orders) == stages
    for actions in orders:
        assert len(actions) == 2 * micro_batches
        seen = {(action.kind, action.micro_batch): place for place, action in enumerate(actions)}
        assert len(seen) == 2 * micro_batches
        assert all(seen["F", index] < seen["B", index] for index in range(micro_batches))


@given(pipelines, st.floats(0.1, 5.0), st.floats(0.1, 5.0))
@settings(deadline=None)
def test_makespan_is_the_closed_form(pipeline, forward_s, backward_s):
    # GPipe and 1F1B with equal stages and free messages: (m + p - 1)(F + B), the bubble (p - 1)(F + B).
    name, stages, micro_batches = pipeline
    found_s = _simulate(name, stages, micro_batches, forward_s, backward_s)
    assert found_s == pytest.approx((micro_batches + stages - 1) * (forward_s + backward_s))


@given(st.integers(1, 6), st.integers(1, 12))
def test_activations_alive(stages, micro_batches):
    # GPipe holds all m on every stage; 1F1B at most p - stage.
    for name, most in (("gpipe", lambda _: micro_batches), ("1f1b", lambda s: min(stages - s, micro_batches))):
        for stage, actions in enumerate(schedule(name, stages, micro_batches)):
            alive = np.cumsum([1 if action.kind == "F" else -1 for action in actions])
            assert alive.max() == most(stage)
            assert alive[-1] == 0


def test_unknown_schedule_names_the_known_ones():
    with pytest.raises(PlanError, match="gpipe"):
        schedule("zigzag", 2, 2)


def _simulate(name: str, stages: int, micro_batches: int, forward_s: float, backward_s: float) -> float:
    builder = GraphBuilder()
    streams = [builder.add_stream(f"stage {index}") for index in range(stages)]
    orders = schedule(name, stages, micro_batches)
    done: dict[tuple[str, int, int], int] = {}
    durations = []
    position = [0] * stages
    while any(position[s] < len(orders[s]) for s in range(stages)):
        for s in range(stages):
            while position[s] < len(orders[s]):
                kind, index = orders[s][position[s]]
                before = (kind, s - 1 if kind == "F" else s + 1, index)
                if 0 <= before[1] < stages and before not in done:
                    break
                after = [done[before]] if before in done else []
                done[kind, s, index] = builder.task(streams[s], label=kind, category=kind, after=after)
                durations.append(forward_s if kind == "F" else backward_s)
                position[s] += 1
    return float(simulate(builder.build(), np.array(durations)).makespan_s)
