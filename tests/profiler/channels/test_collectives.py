"""Collectives as gloo and NCCL leave them in a recording."""

import json
from collections import Counter
from pathlib import Path

import pytest
from foretrace.profiler.channels.channel import StepWindow
from foretrace.profiler.channels.collectives import CollectivesChannel
from foretrace.profiler.channels.events import RawEvent

CASE = Path(__file__).parents[2] / "cases" / "S07-gloo-two-ranks"


class Recorded:
    """A recording that replays."""

    problem = None
    gave_way = False

    def __init__(self, events):
        self.events = events

    def unavailable(self):
        return None


def channel(events, sizes=(2,), steps=1):
    made = CollectivesChannel(Recorded(events), rank=0, group_sizes=lambda: list(sizes))
    windows = [StepWindow(step, step * 1.0, step + 1.0) for step in range(steps)]
    return made, made.rows(windows)["events"], made.last_rows()["collectives"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_two_rank_run(rank):
    trace = json.loads((CASE / f"rank{rank}.trace.json").read_text())
    expected = json.loads((CASE / "expected.json").read_text())["ranks"][str(rank)]
    complete = [one for one in trace["traceEvents"] if one.get("ph") == "X"]
    first = min(one["ts"] for one in complete)
    events = [
        RawEvent(
            one["name"], round((one["ts"] - first) * 1e3), round((one["ts"] - first + one["dur"]) * 1e3), one["tid"], 7,
            shapes=one["args"].get("Input Dims", []), dtypes=one["args"].get("Input type", []),
        )
        for one in complete
    ]  # fmt: skip
    last_s = max(event.end_ns for event in events) / 1e9
    made = CollectivesChannel(
        Recorded(events),
        rank=rank,
        group_sizes=lambda: [one["pg_size"] for one in trace["distributedInfo"]["pg_config"]],
    )
    told = made.rows([StepWindow(0, 0.0, last_s / 2), StepWindow(1, last_s / 2, last_s + 1)])["events"]
    names = Counter(event["name"] for event in told)
    assert names["gloo:all_reduce"] == expected["all_reduce_count"]
    assert names["gloo:barrier"] == expected["barrier_count"]
    rows = made.last_rows()["collectives"]
    sizes = sorted(row["bytes"] for row in rows if row["kind"] == "all_reduce")
    # float32: 1000 and 12448 elements.
    assert sizes == [4000, 49792]
    assert {row["ranks"] for row in rows} == {expected["group_size"]}
    assert sum(row["bytes"] * row["count"] * 2 for row in rows) == expected["all_reduce_bytes_total"]


def gloo(name, start_ns, dims, thread=2):
    return RawEvent(f"gloo:{name}", start_ns, start_ns + 50, thread, 7, shapes=dims, dtypes=["float"])


def call(name, start_ns, shapes=()):
    return RawEvent(f"c10d::{name}", start_ns, start_ns + 5, 1, shapes=shapes)


def test_the_call_tells_what_gloos_label_does_not():
    # gloo writes a reduce-scatter as an all-reduce, and an all-gather by the share of one rank.
    _, events, rows = channel(
        [
            call("_reduce_scatter_base_", 0, [[50], [100]]), gloo("all_reduce", 10, [[100]]),
            call("_allgather_base_", 100, [[200], [100]]), gloo("all_gather", 110, [[100]]),
            call("allreduce_", 200, [[]]), gloo("all_reduce", 210, [[30]]),
            call("send", 300, [[]]), gloo("send", 310, [[33]]),
        ]
    )  # fmt: skip
    assert [(row["kind"], row["bytes"], row["ranks"]) for row in rows] == [
        ("reduce_scatter", 400, 2), ("all_gather", 800, 2), ("all_reduce", 120, 2), ("send_recv", 132, 2),
    ]  # fmt: skip
    assert [event["row"] for event in events] == [0, 1, 2, 3]


def test_an_unknown_group_stays_unknown():
    made, events, rows = channel([gloo("all_reduce", 10, [[100]])], sizes=(4, 2))
    assert rows == []
    assert events[0]["row"] is None
    assert "1 of 1 calls have no known group size" in made.facts()["problem"]
    # An all-gather tells it by itself: 200 elements out of 50 of each.
    _, _, rows = channel([call("_allgather_base_", 0, [[200], [50]]), gloo("all_gather", 10, [[50]])], sizes=(4, 2))
    assert (rows[0]["ranks"], rows[0]["bytes"]) == (4, 800)


def test_nccl():
    extra = {
        "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": "100", "Out msg nelems": "800",
        "Group size": "8",
    }  # fmt: skip
    _, _, rows = channel([RawEvent("record_param_comms", 0, 10, 1, extra=extra)])
    assert [(row["kind"], row["bytes"], row["ranks"], row["backend"], row["dtype"]) for row in rows] == [
        ("all_gather", 1600, 8, "nccl", "bf16")
    ]


def test_nothing_ran():
    made, events, rows = channel([])
    assert (events, rows) == ([], [])
    assert made.facts()["reason"] == "no collective ran in the active window"
