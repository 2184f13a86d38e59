"""GraphBuilder: what goes in comes out as arrays; graphs that cannot be run are refused."""

import numpy as np
import pytest
from foretrace.predictor.engine import GraphBuilder


def test_arrays_of_a_small_graph():
    builder = GraphBuilder()
    compute, network = builder.add_stream("compute"), builder.add_stream("network")
    link = builder.add_resource("link", 4.0)
    first = builder.task(compute, label="matmul", category="forward", row=7)
    second = builder.task(network, label="all_reduce", category="communication", after=[first], uses={link: 2.0})
    third = builder.task(compute, label="matmul", category="backward", after=(first, second))
    graph = builder.build()

    assert (first, second, third) == (0, 1, 2)
    assert len(graph) == len(builder) == 3
    assert graph.stream.tolist() == [0, 1, 0]
    assert graph.dep_ptr.tolist() == [0, 0, 1, 3]
    assert graph.dep_idx.tolist() == [0, 0, 1]
    assert graph.use_ptr.tolist() == [0, 0, 1, 1]
    assert (graph.use_idx.tolist(), graph.use_rate.tolist(), graph.capacity.tolist()) == ([0], [2.0], [4.0])
    assert [graph.labels[index] for index in graph.label] == ["matmul", "all_reduce", "matmul"]
    assert [graph.categories[index] for index in graph.category] == ["forward", "communication", "backward"]
    assert graph.row.tolist() == [7, -1, -1]
    assert (graph.streams, graph.resources) == (("compute", "network"), ("link",))


def test_memory_changes_keep_their_order_and_sign():
    builder = GraphBuilder()
    stream, device = builder.add_stream("compute"), builder.add_space("device")
    task = builder.task(stream, label="matmul", category="forward")
    builder.resident(device, "parameters", 100)
    builder.alloc(task, device, "activations", 10)
    builder.free(task, device, "activations", 10)
    graph = builder.build()

    assert graph.alloc_task.tolist() == [-1, 0, 0]
    assert graph.alloc_bytes.tolist() == [100, 10, -10]
    assert [graph.kinds[index] for index in graph.alloc_kind] == ["parameters", "activations", "activations"]
    assert graph.spaces == ("device",)


def test_bytes_per_task_are_as_documented():
    builder = GraphBuilder()
    stream = builder.add_stream("compute")
    for index in range(1000):
        builder.task(stream, label="op", category="forward", after=[index - 1] if index else ())
    # 32 per task, 4 per dependency and the two closing offsets
    assert builder.build().nbytes == 1000 * 32 + 999 * 4 + 2 * 8


def test_a_built_graph_is_read_only_and_apart_from_its_builder():
    builder = GraphBuilder()
    stream = builder.add_stream("compute")
    builder.task(stream, label="op", category="forward")
    graph = builder.build()
    builder.task(stream, label="op", category="forward")
    assert (len(graph), len(builder)) == (1, 2)
    with pytest.raises(ValueError, match="read-only"):
        graph.stream[0] = 3


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"stream": 1}, "task 1 is on stream 1"),
        ({"stream": -1}, "task 1 is on stream -1"),
        ({"after": [1]}, "task 1 depends on task 1"),
        ({"after": [0, 5]}, "task 1 depends on task 5"),
        ({"after": [-1]}, "task 1 depends on task -1"),
        ({"uses": {1: 1.0}}, "task 1 uses resource 1"),
        ({"uses": {0: -0.5}}, "task 1 takes -0.5 of a resource"),
        ({"uses": {0: float("nan")}}, "task 1 takes nan of a resource"),
        ({"uses": {0: float("inf")}}, "task 1 takes inf of a resource"),
    ],
)
def test_a_task_that_cannot_be_run_is_refused(task, message):
    builder = GraphBuilder()
    builder.add_stream("compute")
    builder.add_resource("link", 1.0)
    builder.task(0, label="op", category="forward")
    builder.task(**{"stream": 0, "label": "op", "category": "forward"} | task)
    with pytest.raises(ValueError, match=message):
        builder.build()


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan")])
def test_a_resource_without_capacity_is_refused(capacity):
    builder = GraphBuilder()
    builder.add_resource("link", capacity)
    with pytest.raises(ValueError, match="'link' has capacity"):
        builder.build()


@pytest.mark.parametrize(("task", "space"), [(1, 0), (-2, 0), (0, 1)])
def test_memory_of_unknown_tasks_and_spaces_is_refused(task, space):
    builder = GraphBuilder()
    builder.task(builder.add_stream("compute"), label="op", category="forward")
    builder.add_space("device")
    builder.alloc(task, space, "activations", 1)
    with pytest.raises(ValueError, match="changes memory"):
        builder.build()


def test_an_empty_graph_is_a_graph():
    graph = GraphBuilder().build()
    assert len(graph) == 0
    assert graph.dep_ptr.tolist() == [0]
    assert graph.stream.dtype == graph.dep_idx.dtype == np.int32
