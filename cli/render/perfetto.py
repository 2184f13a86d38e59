"""Timeline -> Chrome trace JSON, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

One process per rank class, one thread per stream. Times are microseconds with nanosecond decimals, as the Trace Event
Format wants them; they are rounded to whole nanoseconds first, so that neighbours on a thread never overlap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...datasets.store.files import write_text
from ...datasets.version import __version__

if TYPE_CHECKING:
    from ...predictor.engine import Timeline

SCHEMA_VERSION = 1


def trace_events(timeline: Timeline, *, name: str, classes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Complete events in order of their start, after the names of processes and threads.

    `classes` are the names of rank classes: a stream `stage 0 compute` is thread `compute` of process `stage 0`; a
    stream of no class stands in a process called `name`. Tasks of less than half a nanosecond are left out.
    """
    processes: dict[str, int] = {}
    threads: dict[str, tuple[int, int]] = {}
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    for stream in timeline.streams:
        if stream in threads:  # classes may give streams the same name
            continue
        owner = max((one for one in classes if stream.startswith(f"{one} ")), key=len, default="")
        if owner not in processes:
            processes[owner] = len(processes) + 1
            names.append(_name("process_name", f"{name}: {owner}" if owner else name, processes[owner], 0))
        process, thread = processes[owner], len(threads) + 1
        threads[stream] = (process, thread)
        names.append(_name("thread_name", stream.removeprefix(f"{owner} ") if owner else stream, process, thread))
    for span in timeline:
        start_ns, end_ns = round(span.start_s * 1e9), round(span.end_s * 1e9)
        if end_ns > start_ns:
            process, thread = threads[span.stream]
            events.append(
                {
                    "ph": "X", "pid": process, "tid": thread, "name": span.label, "cat": span.category,
                    "ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3,
                }
            )  # fmt: skip
    return names + sorted(events, key=lambda event: (event["ts"], event["tid"]))


def write_timeline(path: Path, timeline: Timeline, *, name: str, classes: Sequence[str] = ()) -> None:
    """Write the trace; the file appears whole or not at all."""
    document = {
        "schema_version": SCHEMA_VERSION, "foretrace": __version__, "displayTimeUnit": "ms",
        "traceEvents": trace_events(timeline, name=name, classes=classes),
    }  # fmt: skip
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def _name(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
