"""Recording: torch.profiler around the active window, shared by the channels that read operators and collectives.

Events are taken from the profiler's memory, not from its trace file, so that labels with quotes or non-ASCII text keep
their names and nothing depends on a folder that torch would not tell us is missing.

The execution trace tells what Kineto does not (outputs, strides, values) but makes every operator several times
slower, so it runs in one step of the window only; the others are timed with Kineto alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...datasets.errors import InputError
from ..repair import read_trace
from . import other_profilers
from .events import RawEvent
from .execution_trace import Node, read_execution_trace

_NOISE = (b"USDT:", b"execution_trace_observer.cpp", b"profiler_start", b"profiler_stop")
"""Lines that torch's profiler writes to stderr at every start and stop; the script's own output stays untouched."""


class Recording:
    """Start, perhaps `describe`, stop; then `events` and `nodes`.

    `clock` is the session's; events come in its nanoseconds.
    """

    def __init__(self, *, describes: bool = True, clock: Any = time.perf_counter) -> None:
        self.describes = describes
        self.event_s: float | None = None
        """What recording one event costs, measured at warm-up; None before."""
        self.events: list[RawEvent] = []
        self.nodes: dict[int, Node] = {}
        """By identity of the event; of the described step only."""
        self.repaired_names = 0
        self.gave_way = False
        """True when the script's own profiler took over: the window has nothing."""
        self.problem: str | None = None
        """Why there are no events or no nodes; None when all went well."""
        self._clock = clock
        self._profiler: Any = None
        self._observer: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._offset_ns = 0
        self._identity_base = 0

    def unavailable(self) -> str | None:
        """None, or why torch's profiler cannot record here."""
        import torch

        if not torch.profiler.kineto_available():
            return "this torch was built without Kineto"
        other_profilers.install()
        if torch.autograd._profiler_enabled() or other_profilers.in_use():
            return "another profiler is already recording in this process"
        return None

    def warm_up(self) -> None:
        """Start and stop once, for what the first start costs, and measure the cost of an event."""
        import torch

        if other_profilers.in_use():
            self.problem = other_profilers.IN_USE
            return
        try:
            tensor = torch.ones(2, 2)
            with torch.no_grad(), other_profilers.own():
                plain_s = self._time_views(tensor)
                profiler = self._make(None)
                with quiet_stderr():
                    profiler.start()
                    recorded_s = self._time_views(tensor)
                    profiler.stop()
            # One `t` is three events: itself, `transpose` and `as_strided`.
            self.event_s = max(0.0, (recorded_s - plain_s) / 3)
        except RuntimeError as error:
            self.problem = f"torch.profiler cannot start: {_first_line(error)}"

    def start(self, *, described: bool = False) -> None:
        """Begin to record; `described` says that the first step is already the described one."""
        self.events, self.nodes, self.problem, self.gave_way = [], {}, None, False
        if other_profilers.in_use():
            self.problem, self.gave_way = other_profilers.IN_USE, True
            return
        if self.event_s is None:
            self.warm_up()
        if self.problem is None:
            self._begin(described and self.describes)

    def describe(self) -> None:
        """From here on with the execution trace: the last step of the window begins."""
        if self._profiler is not None and self.describes:
            self._end()
            self._begin(True)

    def stop(self) -> None:
        """End and collect. Does nothing when nothing records."""
        if self._profiler is not None:
            self._end()

    @staticmethod
    def _time_views(tensor: Any, calls: int = 300) -> float:
        """Seconds of one `t()`, the best of three rounds."""
        best = float("inf")
        for _ in range(3):
            before = time.perf_counter()
            for _ in range(calls):
                tensor.t()
            best = min(best, time.perf_counter() - before)
        return best / calls

    def _make(self, observer: Any) -> Any:
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
        return profile(activities=activities, record_shapes=True, execution_trace_observer=observer)

    def _begin(self, described: bool) -> None:
        try:
            if described:
                from torch.profiler import ExecutionTraceObserver

                self._folder = tempfile.TemporaryDirectory(prefix="foretrace-", ignore_cleanup_errors=True)
                self._observer = ExecutionTraceObserver()
                self._observer.register_callback(str(Path(self._folder.name) / "trace.json"))
            self._profiler = self._make(self._observer)
            with quiet_stderr(), other_profilers.own():
                self._profiler.start()
            other_profilers.begin(self._yield)
            # Kineto's clock is the wall clock on all platforms that we read.
            self._offset_ns = round(self._clock() * 1e9) - time.time_ns()
        except (RuntimeError, OSError) as error:
            self.problem = f"torch.profiler cannot start: {_first_line(error)}"
            self._profiler = None
            self._drop_observer()

    def _end(self) -> None:
        profiler, self._profiler = self._profiler, None
        other_profilers.end()
        try:
            import torch

            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            with quiet_stderr(), other_profilers.own():
                profiler.stop()
                if self._observer is not None:
                    self._observer.unregister_callback()  # writes the end of the file
            self._collect(profiler)
        except RuntimeError as error:
            self.problem = f"torch.profiler cannot stop: {_first_line(error)}"
        finally:
            self._drop_observer()

    def _yield(self) -> None:
        """The script starts its own profiler."""
        self.stop()
        self.events, self.nodes, self.problem, self.gave_way = [], {}, other_profilers.IN_USE, True

    def _collect(self, profiler: Any) -> None:
        # Every start counts ids anew; a base keeps the two halves of a window apart.
        base = self._identity_base
        if self._observer is not None and self._folder is not None:
            try:
                self.nodes |= self._joined(profiler, Path(self._folder.name), base)
            except InputError as error:
                self.problem = f"the execution trace cannot be joined: {str(error).partition(': ')[2]}"
        for event in profiler.profiler.kineto_results.events():
            raw = self._raw(event, base)
            if raw is not None:
                self.events.append(raw)
                self._identity_base = max(self._identity_base, raw.identity)

    def _joined(self, profiler: Any, folder: Path, base: int) -> dict[int, Node]:
        """By our identity of an event: its node. The record function id stands in Kineto's file only."""
        nodes, repaired = read_execution_trace(folder / "trace.json")
        self.repaired_names += repaired
        exported = folder / "kineto.json"
        profiler.export_chrome_trace(str(exported))
        # torch says nothing when it cannot write this file; reading it does.
        trace, _ = read_trace(exported)
        found = {}
        for event in trace.get("traceEvents") or []:
            arguments = event.get("args") or {}
            identity, record = arguments.get("External id"), arguments.get("Record function id")
            if identity and record in nodes:
                found[base + identity] = nodes[record]
        return found

    def _raw(self, event: Any, base: int) -> RawEvent | None:
        start_ns = event.start_ns() + self._offset_ns
        end_ns = start_ns + max(0, event.duration_ns())
        name = event.name()
        kind = str(event.device_type()).rpartition(".")[2]
        if kind != "CPU":
            linked = event.linked_correlation_id()
            device = f"{kind.lower()}:{event.device_index()}"
            return RawEvent(
                name, start_ns, end_ns, event.device_resource_id(), device=device,
                launched_by=base + linked if linked > 0 else 0,
            )  # fmt: skip
        identity = event.correlation_id()
        identity = base + identity if identity else 0
        raw = RawEvent(name, start_ns, end_ns, event.start_thread_id(), event.scope(), identity)
        if "::" in name or ":" in name or name == "record_param_comms":
            raw.shapes, raw.dtypes = event.structured_input_shapes(), event.dtypes()
            raw.strides, raw.concrete = event.structured_input_strides(), event.concrete_inputs()
            if name == "record_param_comms":
                raw.extra = dict(event.extra_meta())
        return raw

    def _drop_observer(self) -> None:
        if self._observer is not None:
            with suppress(RuntimeError), quiet_stderr():
                self._observer.cleanup()
        if self._folder is not None:
            self._folder.cleanup()
        self._observer = self._folder = None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keep the profiler's own chatter off the script's stderr; any other line written meanwhile comes out after."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, ValueError, AttributeError):
        yield
        return
    try:
        with tempfile.TemporaryFile() as caught:
            os.dup2(caught.fileno(), 2)
            try:
                yield
            finally:
                with suppress(OSError, ValueError):
                    sys.stderr.flush()
                os.dup2(kept, 2)
                caught.seek(0)
                lines = [line for line in caught if not any(noise in line for noise in _NOISE)]
                if lines:
                    os.write(2, b"".join(lines))
    finally:
        os.close(kept)
