"""Timeline, critical path and parts: hand arithmetic and laws."""

import math
from itertools import pairwise

import numpy as np
import pytest
from foretrace.predictor.engine import GraphBuilder, Simulated, Span, Timeline, critical_path, parts, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

# The first example may have to compile, so none has a deadline.
law = settings(deadline=None, max_examples=60)


def overlapped():
    """compute: forward [0, 2], forward [2, 5], optimizer [6, 7]; network: all_reduce [2, 6], which it waits for."""
    builder = GraphBuilder()
    compute, network = builder.add_stream("compute"), builder.add_stream("network")
    first = builder.task(compute, label="first", category="forward")
    builder.task(compute, label="second", category="forward")
    reduced = builder.task(network, label="all_reduce", category="communication", after=[first])
    builder.task(compute, label="step", category="optimizer", after=[reduced])
    graph = builder.build()
    return graph, simulate(graph, np.array([2.0, 3.0, 4.0, 1.0]))


@st.composite
def simulated_graphs(draw):
    tasks, streams = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    builder = GraphBuilder()
    for index in range(streams):
        builder.add_stream(f"stream {index}")
    link = builder.add_resource("link", 1.0)
    for index in range(tasks):
        builder.task(
            draw(st.integers(0, streams - 1)),
            label="op",
            category=draw(st.sampled_from(["forward", "backward", "communication"])),
            after=draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else (),
            uses={link: draw(st.sampled_from([0.0, 0.7]))},
        )
    graph = builder.build()
    durations = draw(st.lists(st.floats(0, 10), min_size=tasks, max_size=tasks))
    return graph, simulate(graph, np.array(durations))


def test_spans():
    assert list(Timeline.of(*overlapped())) == [
        Span("compute", 0.0, 2.0, "first", "forward"),
        Span("compute", 2.0, 5.0, "second", "forward"),
        Span("network", 2.0, 6.0, "all_reduce", "communication"),
        Span("compute", 6.0, 7.0, "step", "optimizer"),
    ]


def test_busy_and_bubbles():
    timeline = Timeline.of(*overlapped())
    assert timeline.busy_s("compute") == 2 + 3 + 1
    assert timeline.bubbles("compute") == [(5.0, 6.0)]
    assert timeline.busy_s("network") == 4
    assert timeline.bubbles("network") == [(0.0, 2.0), (6.0, 7.0)]
    with pytest.raises(KeyError, match="no stream 'disk'; there are compute, network"):
        timeline.busy_s("disk")


def test_exposed():
    timeline = Timeline.of(*overlapped())
    # communication runs [2, 6], of which forward hides [2, 5]
    assert timeline.exposed_s("communication") == 1
    assert timeline.exposed_s("communication", ["forward"]) == 1
    assert timeline.exposed_s("communication", ["optimizer"]) == 4
    assert timeline.exposed_s("communication", streams=["network"]) == 4
    assert timeline.exposed_s("forward") == 2
    assert timeline.exposed_s("input") == 0


def test_critical_path_and_parts():
    graph, simulated = overlapped()
    # first [0, 2] -> all_reduce [2, 6] -> step [6, 7]
    assert critical_path(graph, simulated) == [0, 2, 3]
    assert parts(graph, simulated) == {"forward": 2.0, "communication": 4.0, "optimizer": 1.0}


def test_where_two_end_together_the_work_is_critical_and_the_communication_hidden():
    builder = GraphBuilder()
    compute, network = builder.add_stream("compute"), builder.add_stream("network")
    reduced = builder.task(network, label="all_reduce", category="communication")
    builder.task(compute, label="op", category="forward")
    builder.task(compute, label="step", category="optimizer", after=[reduced])
    graph = builder.build()
    assert parts(graph, simulate(graph, np.ones(3))) == {"forward": 1.0, "optimizer": 1.0}


def test_gaps_of_other_clocks_are_idle():
    graph, simulated = overlapped()
    later = Simulated(simulated.start_s + 0.5, simulated.end_s + 0.5, 7.5)
    assert parts(graph, later)["idle"] == 0.5
    assert math.fsum(parts(graph, later).values()) == 7.5


def test_no_tasks():
    graph = GraphBuilder().build()
    simulated = simulate(graph, np.empty(0))
    assert critical_path(graph, simulated) == []
    assert parts(graph, simulated) == {}


def test_one_sample_at_a_time():
    graph, _ = overlapped()
    simulated = simulate(graph, np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"Simulated\.sample"):
        Timeline.of(graph, simulated)
    with pytest.raises(ValueError, match=r"Simulated\.sample"):
        parts(graph, simulated)
    assert critical_path(graph, simulated.sample(1)) == [0, 1, 3]


@law
@given(simulated_graphs())
def test_parts_sum_to_the_makespan(drawn):
    graph, simulated = drawn
    assert math.fsum(parts(graph, simulated).values()) == pytest.approx(simulated.makespan_s, rel=1e-14)


@law
@given(simulated_graphs())
def test_the_critical_path_has_no_gaps(drawn):
    graph, simulated = drawn
    path = critical_path(graph, simulated)
    assert path == sorted(path)
    assert [0.0, *simulated.end_s[path]] == [*simulated.start_s[path], simulated.makespan_s]


@law
@given(simulated_graphs())
def test_busy_and_bubbles_fill_the_run(drawn):
    timeline = Timeline.of(*drawn)
    for stream in timeline.streams:
        idle_s = math.fsum(end - start for start, end in timeline.bubbles(stream))
        assert timeline.busy_s(stream) + idle_s == pytest.approx(timeline.makespan_s)


@law
@given(simulated_graphs())
def test_exposed_time_against_a_count_of_slices(drawn):
    """Between two neighbouring events nothing changes, so exposed time is a sum over those slices."""
    timeline = Timeline.of(*drawn)
    spans = list(timeline)
    times = sorted({0.0, *(span.start_s for span in spans), *(span.end_s for span in spans)})
    expected = 0.0
    for begin, finish in pairwise(times):
        running = {span.category for span in spans if span.start_s <= begin and span.end_s >= finish}
        if "communication" in running and "forward" not in running:
            expected += finish - begin
    assert timeline.exposed_s("communication", ["forward"]) == pytest.approx(expected, abs=1e-9)
