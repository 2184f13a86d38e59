"""How raw events nest, down to the nanosecond."""

import json
from pathlib import Path

import pytest
from foretrace.profiler.channels.events import RawEvent, nest
from hypothesis import given
from hypothesis import strategies as st

CASE = Path(__file__).parents[2] / "cases" / "S05-nanosecond-rounding"


def test_a_child_may_end_a_nanosecond_late():
    trace = json.loads((CASE / "trace.json").read_text(), parse_float=str, parse_int=str)
    expected = json.loads((CASE / "expected.json").read_text())

    def ns(microseconds):
        whole, _, digits = microseconds.partition(".")
        return int(whole) * 1000 + int(digits.ljust(3, "0")[:3] or 0)

    nesting = nest(
        RawEvent(one["name"], ns(one["ts"]), ns(one["ts"]) + ns(one["dur"]), int(one["tid"]))
        for one in trace["traceEvents"]
        if one["ph"] == "X"
    )
    names = [event.name for event in nesting.events]
    parents = {names[i]: None if p is None else names[p] for i, p in enumerate(nesting.parents)}
    assert parents == expected["parents"]
    for index, name in enumerate(names):
        assert nesting.self_ns[index] / 1e3 == pytest.approx(expected["self_us"][name], abs=expected["tolerance_us"])
        assert nesting.self_ns[index] >= 0
    span = max(event.end_ns for event in nesting.events) - min(event.start_ns for event in nesting.events)
    assert span / 1e3 == pytest.approx(expected["span_us"], abs=expected["tolerance_us"])


def test_threads_do_not_nest_in_each_other():
    nesting = nest([RawEvent("a", 0, 100, 1), RawEvent("b", 10, 20, 2), RawEvent("c", 10, 20, 1)])
    assert [event.name for event in nesting.events] == ["a", "c", "b"]
    assert nesting.parents == [None, 0, None]
    assert nesting.self_ns == [90, 10, 10]
    assert nesting.descendants == [1, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100), st.integers(1, 2)), max_size=30))
def test_self_times_of_a_thread_never_exceed_its_wall_time(spans):
    events = [RawEvent(f"op{i}", start, start + length, thread) for i, (start, length, thread) in enumerate(spans)]
    # Only what can happen on a thread: events that cross each other are dropped.
    kept = []
    for event in events:
        crossing = any(
            other.thread == event.thread
            and (other.start_ns < event.start_ns < other.end_ns < event.end_ns
                 or event.start_ns < other.start_ns < event.end_ns < other.end_ns)
            for other in kept
        )  # fmt: skip
        if not crossing:
            kept.append(event)
    nesting = nest(kept)
    for thread in (1, 2):
        inside = [i for i, event in enumerate(nesting.events) if event.thread == thread]
        if inside:
            first = min(nesting.events[i].start_ns for i in inside)
            last = max(nesting.events[i].end_ns for i in inside)
            assert sum(nesting.self_ns[i] for i in inside) <= last - first
