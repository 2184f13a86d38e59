"""memory_timelines: changes in time order, the peak and its parts."""

import numpy as np
from foretrace.predictor.engine import GraphBuilder, memory_timelines, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

# The first example may have to compile, so none has a deadline.
law = settings(deadline=None, max_examples=60)


def forward_and_backward():
    """Two layers of 1 s: each keeps 10 bytes from its forward to the end of its backward; the parameters are 100.

    The backward of a layer takes 5 bytes for itself.
    """
    builder = GraphBuilder()
    stream, device = builder.add_stream("compute"), builder.add_space("device")
    builder.resident(device, "parameters", 100)
    for name in ("F0", "F1"):
        builder.alloc(builder.task(stream, label=name, category="forward"), device, "activations", 10)
    for name in ("B1", "B0"):
        task = builder.task(stream, label=name, category="backward")
        builder.alloc(task, device, "workspace", 5)
        builder.free(task, device, "workspace", 5)
        builder.free(task, device, "activations", 10)
    return builder.build(), np.ones(4)


def test_timeline_by_hand():
    graph, durations = forward_and_backward()
    device = memory_timelines(graph, simulate(graph, durations))["device"]
    #              resident F0  F1   B1 starts, ends    B0 starts, ends
    assert device.time_s.tolist() == [0, 0, 1, 2, 3, 3, 3, 4, 4]
    assert device.total_bytes().tolist() == [100, 110, 120, 125, 120, 110, 115, 110, 100]
    # Peak: 100 + 10 + 10 + 5 when the first backward starts
    assert (device.peak_bytes, device.peak_at_s) == (125, 2.0)
    assert device.parts_bytes == {"parameters": 100, "activations": 20, "workspace": 5}
    assert device.bytes_by_kind()["activations"].tolist() == [0, 10, 20, 20, 20, 10, 10, 10, 0]


def test_peak_between_two_times():
    graph, durations = forward_and_backward()
    device = memory_timelines(graph, simulate(graph, durations))["device"]
    assert device.peak_between(0.0, 1.0) == 110
    assert device.peak_between(0.5, 1.5) == 120
    assert device.peak_between(2.5, 2.75) == 125  # nothing changes there
    assert device.peak_between(3.0, 9.0) == 115
    assert device.peak_between(4.0, 9.0) == 100


def test_spaces_are_apart_and_may_be_empty():
    builder = GraphBuilder()
    stream = builder.add_stream("compute")
    spaces = [builder.add_space(name) for name in ("stage 0", "stage 1", "stage 2")]
    task = builder.task(stream, label="op", category="forward")
    builder.alloc(task, spaces[2], "activations", 3)
    builder.alloc(task, spaces[0], "activations", 1)
    graph = builder.build()
    timelines = memory_timelines(graph, simulate(graph, np.ones(1)))
    assert {name: timeline.peak_bytes for name, timeline in timelines.items()} == {
        "stage 0": 1,
        "stage 1": 0,
        "stage 2": 3,
    }
    assert timelines["stage 1"].parts_bytes == {}
    assert timelines["stage 1"].peak_between(0.0, 1.0) == 0


def test_a_task_of_no_time_still_needs_its_workspace():
    builder = GraphBuilder()
    stream, device = builder.add_stream("compute"), builder.add_space("device")
    task = builder.task(stream, label="op", category="forward")
    builder.free(task, device, "workspace", 8)
    builder.alloc(task, device, "workspace", 8)
    graph = builder.build()
    assert memory_timelines(graph, simulate(graph, np.zeros(1)))["device"].peak_bytes == 8


def test_memory_of_one_task_is_free_for_the_next():
    builder = GraphBuilder()
    stream, device = builder.add_stream("compute"), builder.add_space("device")
    for _ in range(3):
        task = builder.task(stream, label="op", category="forward")
        builder.alloc(task, device, "workspace", 8)
        builder.free(task, device, "workspace", 8)
    graph = builder.build()
    assert memory_timelines(graph, simulate(graph, np.ones(3)))["device"].peak_bytes == 8


@law
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(-50, 50), st.integers(0, 1)), max_size=30)
)
def test_parts_sum_to_the_peak(changes):
    builder = GraphBuilder()
    streams = [builder.add_stream("compute"), builder.add_stream("network")]
    spaces = [builder.add_space("stage 0"), builder.add_space("stage 1")]
    for index in range(5):
        builder.task(streams[index % 2], label="op", category="forward")
    for task, kind, size_bytes, space in changes:
        builder.alloc(task, spaces[space], kind, size_bytes)
    graph = builder.build()
    for index, timeline in enumerate(memory_timelines(graph, simulate(graph, np.arange(5.0))).values()):
        assert sum(timeline.parts_bytes.values()) == timeline.peak_bytes
        assert timeline.peak_bytes == max([0, *timeline.total_bytes().tolist()])
        assert (np.diff(timeline.time_s) >= 0).all()
        assert timeline.change_bytes.sum() == sum(size for _, _, size, space in changes if space == index)
        assert timeline.peak_between(-1.0, np.inf) == timeline.peak_bytes
        assert sum(timeline.bytes_by_kind().values(), np.zeros(len(timeline.time_s))).tolist() == (
            timeline.total_bytes().tolist()
        )
