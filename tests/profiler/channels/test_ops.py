"""Op rows of a real recording, against hand arithmetic and an independent count."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from foretrace.datasets.ops import canonical
from foretrace.profiler.channels.channel import StepWindow
from foretrace.profiler.channels.events import RawEvent, nest
from foretrace.profiler.channels.ops import OpsChannel
from foretrace.profiler.channels.recording import Recording, quiet_stderr
from torch.utils._python_dispatch import TorchDispatchMode

CASES = Path(__file__).parents[2] / "cases"
BATCH, IN, HIDDEN, OUT = 8, 16, 32, 4


class Training:
    """A small MLP whose step can be called again and again."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(IN, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUT))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs, self.target = torch.randn(BATCH, IN), torch.randint(0, OUT, (BATCH,))

    def __call__(self):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.inputs), self.target).backward()
        self.optimizer.step()


@pytest.fixture(scope="module")
def recorded():
    """(channel, windows, events rows, op rows, nesting) of two timed steps and a described one."""
    train = Training()
    train()
    recording = Recording()
    channel = OpsChannel(recording, rank=0)
    assert channel.unavailable() is None
    windows = []
    recording.start()
    for step in range(3):
        if step == 2:
            recording.describe()
        start_s = recording._clock()
        train()
        windows.append(StepWindow(step, start_s, recording._clock(), described=step == 2))
    recording.stop()
    assert recording.problem is None
    nesting = nest(recording.events)
    rows = channel.rows(windows)
    return channel, windows, rows["events"], channel.last_rows(), nesting


def test_shapes_and_flops_by_hand(recorded):
    ops = recorded[3]["ops"]
    gemms = {(row["name"], row["phase"], row["m"], row["n"], row["k"]): row for row in ops if row["name"][-2:] == "mm"}
    wanted = {
        # y = x Wᵀ + b: (8 × 16)(16 × 32), (8 × 32)(32 × 4)
        ("aten.addmm", "forward", BATCH, HIDDEN, IN),
        ("aten.addmm", "forward", BATCH, OUT, HIDDEN),
        # dW = dyᵀ x: (4 × 8)(8 × 32), (32 × 8)(8 × 16); dx = dy W of the second layer only: (8 × 4)(4 × 32)
        ("aten.mm", "backward", OUT, HIDDEN, BATCH),
        ("aten.mm", "backward", HIDDEN, IN, BATCH),
        ("aten.mm", "backward", BATCH, HIDDEN, OUT),
    }
    assert set(gemms) == wanted
    for (_, _, m, n, k), row in gemms.items():
        assert row["flops"] == 2 * m * n * k
        assert row["count"] == 1
        assert row["dtype"] == "fp32"
        assert row["time_s"] > 0
    first = gemms["aten.addmm", "forward", BATCH, HIDDEN, IN]
    # Reads the bias, the input and the weight, writes the output; four bytes each.
    assert first["bytes_read"] == 4 * (HIDDEN + BATCH * IN + IN * HIDDEN)
    assert first["bytes_written"] == 4 * BATCH * HIDDEN
    assert {row["phase"] for row in ops if row["op"] == "elementwise.add"} == {"optimizer"}


def test_counts_agree_with_a_dispatch_mode(recorded):
    train = Training()
    train()

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            op = canonical(func._schema.name, [], [])
            if op is not None and op.op != "view" and not func._schema.name.startswith("profiler::"):
                self.names[op.name] += 1
            return func(*args, **(kwargs or {}))

    with Counting() as counting:
        train()
    counts = Counter()
    for row in recorded[3]["ops"]:
        if row["op"] != "view":
            counts[row["name"]] += row["count"]
    assert counts == counting.names


def test_no_time_is_counted_twice(recorded):
    channel, windows, events, _, nesting = recorded
    taken = channel.take(nesting, windows)
    for window in windows:
        inside = [one for one in taken if one.step == window.step]
        assert sum(one.time_s for one in inside) <= window.time_s
        for first, second in pairwise(inside):
            assert first.end_s <= second.start_s + 2e-9
        ids = [i for i, e in enumerate(nesting.events) if window.start_s <= e.start_ns / 1e9 < window.end_s]
        assert sum(nesting.self_ns[i] for i in ids) / 1e9 <= window.time_s
        # No op inside of another one.
        indices = {one.index for one in inside}
        for index in indices:
            parent = nesting.parents[index]
            while parent is not None:
                assert parent not in indices
                parent = nesting.parents[parent]
    assert {event["step"] for event in events} == {0, 1}  # the described step is slow: it only names ops
    for event in events:
        if event["parent"] is not None:
            around = events[event["parent"]]
            assert around["start_s"] <= event["start_s"] and event["end_s"] <= around["end_s"] + 1e-8


def test_everything_is_joined_and_host_time_is_what_is_left(recorded):
    channel, windows, _, last, _ = recorded
    facts = channel.facts()
    assert facts["join_share"] == 1.0
    told, _, of = facts["joined_by_id"].partition(" of ")
    assert told == of.partition(" ")[0]
    assert "reason" not in facts
    host = {row["phase"]: row for row in last["host"]}
    assert set(host) == {"forward", "backward", "optimizer"}
    spent_s = sum(row["time_s"] for row in host.values())
    ops_s = sum(row["time_s"] * row["count"] for row in last["ops"])
    assert spent_s + ops_s <= 1.05 * max(window.time_s for window in windows[:2])


class Replayed:
    """A recording with given events."""

    event_s = 0.0
    gave_way = False
    nodes: dict = {}  # noqa: RUF012
    problem = None
    repaired_names = 0

    def __init__(self, events):
        self.events = events


def op(name, start_us, end_us, identity=0, **others):
    return RawEvent(name, start_us * 1000, end_us * 1000, 1, identity=identity, **others)


def test_the_outermost_known_op_is_the_row():
    events = [
        op("aten::linear", 0, 100), op("aten::addmm", 10, 90), op("aten::copy_", 20, 30),
        op("mine::outer", 200, 300), op("aten::relu", 210, 250),
        op("mine::alone", 400, 450),
        op("c10d::allreduce_", 500, 550), op("aten::zeros", 600, 650),
    ]  # fmt: skip
    nesting = nest(events)
    channel = OpsChannel(Replayed(events), rank=0)
    taken = channel.take(nesting, [StepWindow(0, 0.0, 1.0)])
    assert [nesting.events[one.index].name for one in taken] == [
        "aten::addmm", "aten::relu", "mine::alone", "aten::zeros",
    ]  # fmt: skip
    channel.rows([StepWindow(0, 0.0, 1.0)])
    assert "unknown.mine.alone" in {row["op"] for row in channel.last_rows()["ops"]}


def test_device_time_is_the_time_of_its_kernels():
    events = [
        op("aten::addmm", 0, 10, identity=7), op("cudaLaunchKernel", 2, 4, identity=8),
        RawEvent("gemm_kernel", 50_000, 90_000, 7, device="cuda:0", launched_by=8),
        RawEvent("epilogue_kernel", 90_000, 95_000, 7, device="cuda:0", launched_by=7),
    ]  # fmt: skip
    channel = OpsChannel(Replayed(events), rank=0)
    (taken,) = channel.take(nest(events), [StepWindow(0, 0.0, 1.0)])
    assert taken.time_s == pytest.approx(45e-6)
    assert taken.device == "cuda"


def test_waiting_for_a_collective_is_not_host_time():
    # add 0-10, gap 10-90 with a collective 20-70 and 60-80 on two threads, mul 90-100, gap to 110.
    events = [
        op("aten::add", 0, 10), op("aten::mul", 90, 100),
        RawEvent("gloo:all_reduce", 20_000, 70_000, 2, 7), RawEvent("gloo:all_reduce", 60_000, 80_000, 3, 7),
    ]  # fmt: skip
    channel = OpsChannel(Replayed(events), rank=0)
    channel.rows([StepWindow(0, 0.0, 110e-6)])
    host = {row["kind"]: row["time_s"] for row in channel.last_rows()["host"]}
    # 80 + 10 between ops, 60 of them waiting.
    assert host == {"step": pytest.approx(30e-6), "wait": pytest.approx(60e-6)}


def case_events(name):
    trace = json.loads((CASES / name / "trace.json").read_text())["traceEvents"]
    scope = {"user_annotation": 7}
    return [
        RawEvent(one["name"], one["ts"] * 1000, (one["ts"] + one["dur"]) * 1000, one["tid"], scope.get(one["cat"], 0))
        for one in trace
        if one["ph"] == "X"
    ]


def test_what_lies_outside_of_all_steps_belongs_to_none():
    expected = json.loads((CASES / "S15-unfinished-last-step" / "expected.json").read_text())
    events = case_events("S15-unfinished-last-step")
    windows = [
        StepWindow(int(event.name.partition("#")[2]), event.start_ns / 1e9, event.end_ns / 1e9)
        for event in events
        if event.name.startswith("ProfilerStep#")
    ]
    assert [window.step for window in windows] == expected["steps"]
    assert [round(window.time_s * 1e6) for window in windows] == expected["step_us"]
    channel = OpsChannel(Replayed([event for event in events if event.scope == 0]), rank=0)
    rows = channel.rows(windows)["events"]
    assert {row["step"] for row in rows} <= set(expected["steps"])
    assert channel.facts()["ops_outside_steps"] == expected["outside_ops"]


def test_two_regions_that_lost_their_labels_stay_two():
    expected = json.loads((CASES / "S18-labels-lost-by-the-profiler" / "expected.json").read_text())
    channel = OpsChannel(Replayed(case_events("S18-labels-lost-by-the-profiler")), rank=0)
    rows = channel.rows([StepWindow(0, 0.0, 1.0)])["events"]
    regions = [row for row in rows if row["category"] == "annotation"]
    assert [round((row["end_s"] - row["start_s"]) * 1e6) for row in regions] == expected["region_us"]
    assert channel.facts()["unnamed_regions"] == expected["unnamed_regions"]


def test_only_the_profilers_chatter_is_kept_off_stderr(capfd):
    import os

    with quiet_stderr():
        os.write(2, b"USDT:2026-01-01 1:1 SyncActivityProfilerHandler.cpp:52] profiler_start\nsomebody else\n")
    assert capfd.readouterr().err == "somebody else\n"


def test_changing_shapes_and_arguments():
    """Shapes that the described step did not have are told by inputs alone, and said to be."""
    recording = Recording()
    channel = OpsChannel(recording, rank=0)
    windows = []
    recording.start()
    for step, length in enumerate((5, 7, 9)):
        if step == 2:
            recording.describe()
        start_s = recording._clock()
        torch.ones(length, 3) @ torch.ones(3, 2)
        windows.append(StepWindow(step, start_s, recording._clock(), described=step == 2))
    recording.stop()
    channel.rows(windows)
    rows = {row["m"]: row for row in channel.last_rows()["ops"] if row["name"] == "aten.mm"}
    assert sorted(rows) == [5, 7]
    assert rows[5]["flops"] == 2 * 5 * 3 * 2
    assert 0 <= channel.facts()["join_share"] < 1
