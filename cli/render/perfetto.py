"""Timeline -> Chrome trace JSON, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

Times are microseconds with nanosecond decimals, as the Trace Event Format wants them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...datasets.store.files import write_text

if TYPE_CHECKING:
    from ...predictor.engine import Timeline

SCHEMA_VERSION = 1


def trace_events(timeline: Timeline, *, name: str) -> list[dict[str, Any]]:
    """One process named `name`, one thread per stream, one complete event per task; tasks of no length are left out."""
    threads: dict[str, int] = {}
    events: list[dict[str, Any]] = [_meta("process_name", name, 0)]
    for span in timeline:
        if span.stream not in threads:
            threads[span.stream] = len(threads) + 1
            events.append(_meta("thread_name", span.stream, threads[span.stream]))
        if span.end_s > span.start_s:
            events.append(
                {
                    "ph": "X", "pid": 1, "tid": threads[span.stream], "name": span.label, "cat": span.category,
                    "ts": round(span.start_s * 1e6, 3), "dur": round((span.end_s - span.start_s) * 1e6, 3),
                }
            )  # fmt: skip
    return events


def write_timeline(path: Path, timeline: Timeline, *, name: str) -> None:
    """Write the trace; the file appears whole or not at all."""
    document = {
        "schema_version": SCHEMA_VERSION, "displayTimeUnit": "ms", "traceEvents": trace_events(timeline, name=name),
    }  # fmt: skip
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def _meta(kind: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": kind, "args": {"name": name}}
