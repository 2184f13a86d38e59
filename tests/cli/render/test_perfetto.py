"""Timeline -> Chrome trace: hand-made timelines, expected events worked out by hand."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from foretrace.cli.render.perfetto import trace_events, write_timeline
from foretrace.datasets.errors import RunError
from foretrace.predictor.engine import Timeline
from hypothesis import given
from hypothesis import strategies as st


def timeline(streams, spans):
    """`spans`: (stream index, start_s, end_s, label, category)."""
    labels = tuple(dict.fromkeys(span[3] for span in spans))
    categories = tuple(dict.fromkeys(span[4] for span in spans))
    return Timeline(
        streams=tuple(streams),
        labels=labels,
        categories=categories,
        stream=np.array([span[0] for span in spans], np.int32),
        start_s=np.array([span[1] for span in spans], float),
        end_s=np.array([span[2] for span in spans], float),
        label=np.array([labels.index(span[3]) for span in spans], np.int32),
        category=np.array([categories.index(span[4]) for span in spans], np.int32),
        makespan_s=max((span[2] for span in spans), default=0.0),
    )


PIPELINE = timeline(
    ["stage 0 compute", "stage 0 to 1", "stage 1 compute", "stage 10 compute"],
    [
        (0, 0.0, 2e-3, "aten.mm", "forward"),
        (1, 2e-3, 3e-3, "send_recv", "communication"),
        (2, 3e-3, 3e-3 + 1.5e-9, "aten.add", "forward"),
        (3, 0.0, 0.4e-9, "host", "host"),
    ],
)


def test_a_class_is_a_process_and_a_stream_its_thread():
    events = trace_events(PIPELINE, name="gpt", classes=["stage 0", "stage 1", "stage 10"])
    named = {(one["name"], one["pid"], one["args"]["name"]) for one in events if one["ph"] == "M"}
    assert named == {
        ("process_name", 1, "gpt: stage 0"),
        ("thread_name", 1, "compute"),
        ("thread_name", 1, "to 1"),
        ("process_name", 2, "gpt: stage 1"),
        ("thread_name", 2, "compute"),
        ("process_name", 3, "gpt: stage 10"),
        ("thread_name", 3, "compute"),
    }
    # 1.5 ns begins at 3,000,000 ns and is rounded with its end, to 2 ns; 0.4 ns is nothing.
    assert [(one["pid"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"] == [
        (1, 1, 0.0, 2000.0),
        (1, 2, 2000.0, 1000.0),
        (2, 3, 3000.0, 0.002),
    ]


def test_without_classes_everything_is_one_process():
    events = trace_events(PIPELINE, name="step")
    assert {one["pid"] for one in events} == {1}
    assert [one["args"]["name"] for one in events if one["ph"] == "M"] == ["step", *PIPELINE.streams]


def test_streams_of_one_name_share_a_thread():
    events = trace_events(timeline(["rank dp", "rank dp"], [(0, 0, 1, "a", "x"), (1, 1, 2, "b", "x")]), name="n")
    assert len({one["tid"] for one in events if one["ph"] == "X"}) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), max_size=30))
def test_threads_are_in_order_and_add_up(tasks):
    """Tasks back to back on three streams: nothing overlaps, and rounding costs at most a nanosecond in all."""
    clock = [0.0, 0.0, 0.0]
    spans = []
    for stream, seconds in tasks:
        spans.append((stream, clock[stream], clock[stream] + seconds, "op", "forward"))
        clock[stream] += seconds
    events = trace_events(timeline(["a", "b", "c"], spans), name="n")
    json.dumps(events, allow_nan=False)
    for thread in (1, 2, 3):
        own = [one for one in events if one["ph"] == "X" and one["tid"] == thread]
        starts = [one["ts"] for one in own]
        assert starts == sorted(starts)
        for one, following in pairwise(own):
            assert round((one["ts"] + one["dur"]) * 1e3) <= round(following["ts"] * 1e3)
        assert math.fsum(one["dur"] for one in own) == pytest.approx(clock[thread - 1] * 1e6, abs=1e-3, rel=1e-12)


def test_no_tasks():
    assert trace_events(timeline([], []), name="empty") == []


def test_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "step.json"
    write_timeline(path, PIPELINE, name='says "hello" – ½')
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema_version"] == 1 and document["displayTimeUnit"] == "ms"
    assert document["traceEvents"][0]["args"]["name"] == 'says "hello" – ½'
    with pytest.raises(RunError, match="absent"):
        write_timeline(tmp_path / "absent" / "step.json", PIPELINE, name="n")
    assert sorted(tmp_path.iterdir()) == [path]
