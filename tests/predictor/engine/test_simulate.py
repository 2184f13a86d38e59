"""simulate: hand arithmetic, laws against a naive reference, and the published pipeline bubbles."""

import numpy as np
import pytest
from foretrace.predictor.engine import GraphBuilder, makespans, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

# The first example may have to compile, so none has a deadline.
law = settings(deadline=None, max_examples=60)


def chain(*durations, streams, after=None, uses=None, capacity=()):
    """A graph with one task per duration on the stream of the same place, and its durations."""
    builder = GraphBuilder()
    for index in range(max(streams, default=-1) + 1):
        builder.add_stream(f"stream {index}")
    for index, value in enumerate(capacity):
        builder.add_resource(f"resource {index}", value)
    for index, stream in enumerate(streams):
        builder.task(
            stream,
            label=f"op {index}",
            category="forward",
            after=(after or {}).get(index, ()),
            uses=(uses or {}).get(index, {}),
        )
    return builder.build(), np.array(durations, dtype=float)


@st.composite
def graphs(draw, shared=False, capacity=None):
    """Small random graphs with durations in whole eighths, so that sums are exact; with `shared`, resources too."""
    tasks = draw(st.integers(0, 12))
    streams = draw(st.integers(1, 4))
    builder = GraphBuilder()
    for index in range(streams):
        builder.add_stream(f"stream {index}")
    resources = draw(st.integers(1, 3)) if shared else 0
    for index in range(resources):
        builder.add_resource(f"resource {index}", capacity or draw(st.sampled_from([0.25, 1.0, 2.0, 3.5])))
    for index in range(tasks):
        builder.task(
            draw(st.integers(0, streams - 1)),
            label="op",
            category=draw(st.sampled_from(["forward", "communication"])),
            after=draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else (),
            uses=draw(
                st.dictionaries(
                    st.integers(0, resources - 1), st.sampled_from([0.0, 0.3, 1.0, 2.0]), max_size=resources
                )
            )
            if shared
            else {},
        )
    durations = draw(st.lists(st.integers(0, 40), min_size=tasks, max_size=tasks))
    return builder.build(), np.array(durations, dtype=float) / 8


def reference(graph, durations):
    """start = max(end of the task before on the stream, ends of the dependencies), in plain Python."""
    start, end, free_at = [], [], [0.0] * len(graph.streams)
    for task, stream in enumerate(graph.stream):
        dependencies = graph.dep_idx[graph.dep_ptr[task] : graph.dep_ptr[task + 1]]
        start.append(max([free_at[stream], *(end[dependency] for dependency in dependencies)]))
        end.append(start[-1] + durations[task])
        free_at[stream] = end[-1]
    return start, end


def fair_rates(graph, running):
    """Max-min fair rates by raising all rates in turn, in plain Python: task -> rate."""
    uses = {
        task: {
            int(graph.use_idx[use]): graph.use_rate[use]
            for use in range(graph.use_ptr[task], graph.use_ptr[task + 1])
            if graph.use_rate[use] > 0
        }
        for task in running
    }
    rates, rising = {}, set(running)
    while rising:
        level = {}
        for resource, capacity in enumerate(graph.capacity):
            wanted = sum(uses[task].get(resource, 0.0) for task in rising)
            taken = sum(uses[task].get(resource, 0.0) * rate for task, rate in rates.items())
            if wanted > 0:
                level[resource] = (capacity - taken) / wanted
        full = min(level, key=level.get, default=None)
        stopped = {task for task in rising if full in uses[task]} if full is not None and level[full] < 1 else rising
        rates |= dict.fromkeys(stopped, min(1.0, level[full]) if full is not None else 1.0)
        rising = rising - stopped
    return rates


def shared_reference(graph, durations):
    """Ends of all tasks by events and `fair_rates`, in plain Python."""
    before, last = [], {}
    for task, stream in enumerate(graph.stream):
        before.append({*graph.dep_idx[graph.dep_ptr[task] : graph.dep_ptr[task + 1]], *last.get(stream, ())})
        last[stream] = [task]
    now, end, left = 0.0, {}, {}
    while len(end) < len(graph):
        for task in range(len(graph)):
            if task not in end and task not in left and before[task] <= end.keys():
                left[task] = durations[task]
        rates = fair_rates(graph, left)
        step = min(work / rates[task] for task, work in left.items())
        now += step
        left = {task: work - rates[task] * step for task, work in left.items()}
        for task in [task for task, work in left.items() if work <= 1e-12]:
            end[task] = now
            del left[task]
    return [end[task] for task in range(len(graph))]


# -- hand arithmetic --


def test_overlap_of_two_streams():
    # stream 0: 2 s, then 3 s; stream 1: 4 s that wait for the first task: 2 + 4 = 6; the last waits for that: 6 + 1 = 7
    graph, durations = chain(2, 3, 4, 1, streams=[0, 0, 1, 0], after={2: [0], 3: [2]})
    simulated = simulate(graph, durations)
    assert simulated.start_s.tolist() == [0, 2, 2, 6]
    assert simulated.end_s.tolist() == [2, 5, 6, 7]
    assert simulated.makespan_s == 7


def test_no_tasks_take_no_time():
    graph, durations = chain(streams=[])
    assert simulate(graph, durations).makespan_s == 0.0
    assert simulate(graph, np.empty((3, 0))).makespan_s.tolist() == [0, 0, 0]


def test_two_that_each_want_all_of_a_resource_take_twice_as_long():
    # Each runs at rate 1/2: 3 s / (1/2) = 6 s.
    graph, durations = chain(3, 3, streams=[0, 1], uses={0: {0: 1.0}, 1: {0: 1.0}}, capacity=[1.0])
    assert simulate(graph, durations).end_s.tolist() == [6, 6]


def test_the_longer_one_speeds_up_when_the_shorter_one_ends():
    # Until 2 s both run at 1/2, so 1 s of work each; the first is done. The second has 3 - 1 = 2 s left at rate 1: 4 s.
    graph, durations = chain(1, 3, streams=[0, 1], uses={0: {0: 1.0}, 1: {0: 1.0}}, capacity=[1.0])
    assert simulate(graph, durations).end_s.tolist() == [2, 4]


def test_who_uses_something_else_is_not_slowed():
    # Capacity 2, uses 2 + 1 + 1 = 4 on resource 0: all three saturate it at rate 1/2. The fourth uses resource 1 alone.
    uses = {0: {0: 2.0}, 1: {0: 1.0}, 2: {0: 1.0}, 3: {1: 1.0}}
    graph, durations = chain(1, 1, 1, 1, streams=[0, 1, 2, 3], uses=uses, capacity=[2.0, 1.0])
    assert simulate(graph, durations).end_s.tolist() == [2, 2, 2, 1]


def test_rates_rise_on_where_there_is_room():
    # Resource 0 (capacity 1) is used by tasks 0, 1 and 2, resource 1 (capacity 1) by tasks 2 and 3.
    # Together to 1/3: resource 0 is used up, tasks 0, 1, 2 stay there. Task 3 rises to 1 - 1/3 = 2/3.
    # Work of 1, 1, 1 at 1/3 and of 2 at 2/3: all end at 3 s.
    uses = {0: {0: 1.0}, 1: {0: 1.0}, 2: {0: 1.0, 1: 1.0}, 3: {1: 1.0}}
    graph, durations = chain(1, 1, 1, 2, streams=[0, 1, 2, 3], uses=uses, capacity=[1.0, 1.0])
    assert simulate(graph, durations).end_s.tolist() == pytest.approx([3, 3, 3, 3])


def test_a_task_that_wants_more_than_there_is_runs_slower_alone():
    # 8 threads on 4 cores: rate 1/2.
    graph, durations = chain(1, streams=[0], uses={0: {0: 8.0}}, capacity=[4.0])
    assert simulate(graph, durations).makespan_s == 2


def test_samples_are_rows():
    graph, _ = chain(0, 0, streams=[0, 1], after={1: [0]})
    durations = np.array([[1.0, 2.0], [3.0, 4.0]])
    simulated = simulate(graph, durations)
    assert simulated.end_s.tolist() == [[1, 3], [3, 7]]
    assert simulated.makespan_s.tolist() == [3, 7]
    assert simulated.sample(1).start_s.tolist() == [0, 3]
    assert simulated.sample(1).makespan_s == 7
    assert makespans(graph, durations).tolist() == [3, 7]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("uses", [None, {0: {0: 1.0}}])
def test_what_is_no_duration_is_refused_by_name(bad, uses):
    graph, _ = chain(1, 1, streams=[0, 0], uses=uses, capacity=[1.0])
    with pytest.raises(ValueError, match=r"task 1 \(op 1\) has a duration of .* in sample 1"):
        simulate(graph, np.array([[1.0, 1.0], [1.0, bad]]))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1, 2), ()])
def test_a_wrong_shape_is_refused(shape):
    graph, _ = chain(1, 1, streams=[0, 0])
    with pytest.raises(ValueError, match="the graph has 2 tasks"):
        simulate(graph, np.ones(shape))


# -- laws --


@law
@given(graphs())
def test_equals_the_naive_reference(drawn):
    graph, durations = drawn
    simulated = simulate(graph, durations)
    start, end = reference(graph, durations)
    assert simulated.start_s.tolist() == start
    assert simulated.end_s.tolist() == end
    assert simulated.makespan_s == max(end, default=0)


@law
@given(graphs(shared=True))
def test_sharing_equals_the_naive_reference(drawn):
    graph, durations = drawn
    assert simulate(graph, durations).end_s.tolist() == pytest.approx(shared_reference(graph, durations), abs=1e-9)


@law
@given(graphs(shared=True, capacity=float("inf")))
def test_endless_resources_change_nothing(drawn):
    graph, durations = drawn
    simulated = simulate(graph, durations / 3)  # thirds: sums are rounded, and must be so alike
    start, end = reference(graph, durations / 3)
    assert simulated.start_s.tolist() == start
    assert simulated.end_s.tolist() == end


@law
@given(graphs(shared=True))
def test_rows_of_a_matrix_are_runs_of_their_own(drawn):
    graph, durations = drawn
    matrix = np.stack([durations, durations[::-1], durations * 2])
    together = simulate(graph, matrix)
    for index, row in enumerate(matrix):
        alone = simulate(graph, row)
        assert together.start_s[index].tolist() == alone.start_s.tolist()
        assert together.end_s[index].tolist() == alone.end_s.tolist()
        assert together.makespan_s[index] == alone.makespan_s == makespans(graph, matrix)[index]


@law
@given(graphs(shared=True))
def test_no_task_starts_before_what_it_waits_for(drawn):
    graph, durations = drawn
    simulated = simulate(graph, durations)
    last = {}
    for task, stream in enumerate(graph.stream):
        waits_for = [*graph.dep_idx[graph.dep_ptr[task] : graph.dep_ptr[task + 1]], *last.get(stream, [])]
        assert simulated.start_s[task] == max([0.0, *simulated.end_s[waits_for]])
        assert simulated.end_s[task] - simulated.start_s[task] >= durations[task] * (1 - 1e-12)
        last[stream] = [task]


@law
@given(graphs(shared=True))
def test_makespan_is_at_least_every_stream_and_every_chain(drawn):
    graph, durations = drawn
    makespan = simulate(graph, durations).makespan_s
    for stream in range(len(graph.streams)):
        assert makespan >= durations[graph.stream == stream].sum() * (1 - 1e-12)
    assert makespan >= max(reference(graph, durations)[1], default=0) * (1 - 1e-12)


@law
@given(graphs(), st.data())
def test_longer_tasks_never_end_a_run_sooner(drawn, data):
    # Without shared resources only: with them list scheduling has Graham's anomalies (1969).
    graph, durations = drawn
    more = np.array(data.draw(st.lists(st.integers(0, 8), min_size=len(durations), max_size=len(durations))))
    before, after = simulate(graph, durations), simulate(graph, durations + more)
    assert (after.end_s >= before.end_s).all()


@law
@given(graphs(shared=True))
def test_no_more_is_taken_than_there_is(drawn):
    """A task takes duration × use of a resource in all, so between two events no more than capacity × time is taken."""
    graph, durations = drawn
    simulated = simulate(graph, durations)
    for resource, capacity in enumerate(graph.capacity):
        taken = np.zeros(len(graph))
        users = np.repeat(np.arange(len(graph)), np.diff(graph.use_ptr))
        mine = graph.use_idx == resource
        np.add.at(taken, users[mine], (durations[users] * graph.use_rate)[mine])
        times = np.unique(np.concatenate(([0.0], simulated.start_s, simulated.end_s)))
        # Whatever their rates, tasks that lie wholly inside [from, to] have taken all of theirs there.
        for index, begin in enumerate(times):
            for finish in times[index + 1 :]:
                inside = (simulated.start_s >= begin) & (simulated.end_s <= finish)
                assert taken[inside].sum() <= capacity * (finish - begin) * (1 + 1e-9)


@law
@given(st.integers(1, 8), st.integers(1, 8))
def test_equal_tasks_share_equally(users, capacity):
    # n tasks of 1 s that each want 1 of c: rate min(1, c / n).
    graph, durations = chain(
        *[1.0] * users,
        streams=range(users),
        uses={index: {0: 1.0} for index in range(users)},
        capacity=[float(capacity)],
    )
    assert simulate(graph, durations).end_s.tolist() == pytest.approx([max(1.0, users / capacity)] * users)


@law
@given(st.integers(0, 2**32 - 1))
def test_a_saturated_resource_is_used_to_the_full(seed):
    # One resource that every task wants in full: whatever the order, the makespan is the sum of all work.
    random = np.random.default_rng(seed)
    durations = random.random(40)
    graph, _ = chain(
        *durations,
        streams=random.integers(0, 5, 40).tolist(),
        uses={index: {0: 1.0} for index in range(40)},
        capacity=[1.0],
    )
    assert simulate(graph, durations).makespan_s == pytest.approx(durations.sum())


# -- pipelines --


def gpipe(stages, micro_batches):
    """Order of one stage: all forwards, then all backwards."""
    order = [("F", index) for index in range(micro_batches)] + [("B", index) for index in range(micro_batches)]
    return [order] * stages


def one_f_one_b(stages, micro_batches):
    """Warm-up forwards (stages - stage), then one backward and one forward in turn."""
    orders = []
    for stage in range(stages):
        warm_up = min(stages - stage, micro_batches)
        order = [("F", index) for index in range(warm_up)]
        for index in range(micro_batches):
            order.append(("B", index))
            if warm_up + index < micro_batches:
                order.append(("F", warm_up + index))
        orders.append(order)
    return orders


def pipeline(orders, forward_s, backward_s):
    """F of a stage waits for F of the stage before, B for B of the stage after (of the last stage for its own F)."""
    builder = GraphBuilder()
    streams = [builder.add_stream(f"stage {index}") for index in range(len(orders))]
    done, durations, position = {}, [], [0] * len(orders)
    while any(at < len(order) for at, order in zip(position, orders, strict=True)):
        for stage, order in enumerate(orders):
            if position[stage] == len(order):
                continue
            kind, index = order[position[stage]]
            neighbour = stage - 1 if kind == "F" else stage + 1
            if kind == "F" and stage == 0:
                needs = []
            else:
                needs = [("F", index, stage)] if neighbour == len(orders) else [(kind, index, neighbour)]
            if all(need in done for need in needs):
                done[kind, index, stage] = builder.task(
                    streams[stage], label=f"{kind}{index}", category=kind, after=[done[need] for need in needs]
                )
                durations.append(forward_s if kind == "F" else backward_s)
                position[stage] += 1
    return builder.build(), np.array(durations)


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_bubble_of_a_pipeline_is_the_published_one(schedule, stages, micro_batches):
    # GPipe (Huang et al., 2019) and PipeDream-flush (Narayanan et al., 2021): (m + p - 1) × (f + b)
    graph, durations = pipeline(schedule(stages, micro_batches), forward_s=1.0, backward_s=2.0)
    assert simulate(graph, durations).makespan_s == (micro_batches + stages - 1) * (1.0 + 2.0)
