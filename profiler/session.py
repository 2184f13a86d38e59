"""Session: counts the steps of one process, and records channels while the active window lasts.

The schedule has torch.profiler's words: `wait` steps with nothing, `warmup` steps, `active` steps recorded, all of it
`repeat` times. Outside of these a step costs two clock reads and one line appended to a file.

What happens in each step of one cycle:

    wait      nothing
    warmup    the profiler is started once for what its first start costs; the last warmup step is weighed (memory)
    timed     active: ops, collectives, host, power
    described active, the last one: the execution trace too, which tells what every op was called with
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..datasets.errors import ForetraceError, UsageError
from ..datasets.store import RunWriter
from .channels.channel import Channel, StepWindow
from .channels.collectives import CollectivesChannel
from .channels.host import HostChannel
from .channels.memory import MemoryChannel
from .channels.ops import OpsChannel, local_processes
from .channels.power import PowerChannel
from .channels.recording import Recording
from .steplog import StepLog

CHANNELS = ("ops", "collectives", "memory", "power", "host")
WAIT, WARMUP, WEIGHED, TIMED, DESCRIBED, DONE = "wait", "warmup", "weighed", "timed", "described", "done"


class Session:
    """One process's recording. Call `step` at the end of every training step, then `close`; or use it as a context.

    `channels` are names out of `CHANNELS`. `origin_s` is the moment of `clock` that counts as 0 in the run's tables;
    ranks of one host share a clock and should share it. `record_steps=False` leaves the steps table to the caller.
    Recording never breaks the training it watches: what goes wrong is kept in `problems` and told once on stderr.
    """

    def __init__(
        self,
        writer: RunWriter,
        *,
        channels: Iterable[str] = CHANNELS,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        origin_s: float | None = None,
        start_s: float | None = None,
        optimizers: Callable[[], Sequence[Any]] = tuple,
        record_steps: bool = True,
    ) -> None:
        check_schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
        self.writer = writer
        self.problems: list[str] = []
        self.steps = 0
        """Finished steps."""
        self.hook_s = 0.0
        """Seconds that our hooks took in all steps outside of the schedule's cycles."""
        self.window_cost_s = 0.0
        """Seconds spent on starting, stopping and reading the channels, all of it between steps."""
        self.closed = False
        self.incomplete = False
        """The disk refused something."""
        self._clock = clock
        self._origin_s = origin_s if origin_s is not None else clock()
        _forget_in_children(self)
        self._broken = not record_steps
        self._log: StepLog | None = None
        self._names = set(channels)
        self._recording = Recording(describes="ops" in self._names, clock=lambda: clock() - self._origin_s)
        self._statuses: dict[str, dict[str, Any]] = {}
        self._window: list[StepWindow] = []
        self._recorded_steps = 0
        self._last_hook_s = 0.0
        self._quiet_steps = 0
        self._phase = WAIT
        self._profiled = False
        self._memory: MemoryChannel | None = None
        self._last: list[Channel] = []
        self._channels = self._make_channels(optimizers)
        self._phases = self._plan(wait, warmup, active, repeat)
        if record_steps:
            try:
                self._log = StepLog(writer)
            except ForetraceError as error:
                self._refused(error)
        self._enter(self._phases[0])
        now = clock()
        # The first step may have begun before us; what we did since is not part of it.
        self._start_s = now if start_s is None else start_s

    def step(self, skipped: bool = False, *, end_s: float | None = None) -> None:
        """A training step ended now, or at `end_s` of the clock when that is found out later."""
        # Between two steps all caches are cold: every attribute and call here is felt.
        clock = self._clock
        entered_s = clock()
        if self.closed:
            return
        end = entered_s if end_s is None else end_s
        if not self._broken:
            origin_s = self._origin_s
            try:
                self._log.append(  # type: ignore[union-attr]
                    self.steps, self._start_s - origin_s, end - origin_s, skipped=skipped, profiled=self._profiled,
                    hook_s=self._last_hook_s,
                )  # fmt: skip
            except ForetraceError as error:
                self._refused(error)
        self.steps += 1
        if self._phase != DONE:
            self._advance(end)
            now = clock()
            self.window_cost_s += now - entered_s
            self._last_hook_s = now - entered_s
        else:
            now = clock()
            self._last_hook_s = spent_s = now - entered_s
            self.hook_s += spent_s
            self._quiet_steps += 1
        self._start_s = now if end_s is None else end_s

    def add_hook_time(self, seconds: float) -> None:
        """Count time that a hook of ours took inside of the present step."""
        self._last_hook_s += seconds
        self.hook_s += seconds

    def warn(self, problem: str) -> None:
        """Keep a problem for the manifest, and tell it once."""
        if problem not in self.problems:
            self.problems.append(problem)
            print(f"foretrace: warning: {problem}", file=sys.stderr, flush=True)

    @property
    def hook_s_per_step(self) -> float | None:
        """Mean seconds that our hooks took in a step outside of the schedule's cycles; None before there is one."""
        return self.hook_s / self._quiet_steps if self._quiet_steps else None

    @property
    def channels(self) -> dict[str, dict[str, Any]]:
        """For every channel `status` (recorded, off, None), `reason`, and what it says of itself."""
        found = dict(self._statuses)
        for channel in self._all_channels():
            facts = channel.facts()
            reason = facts.pop("reason", None)
            found[channel.name] = {"status": None if reason else "recorded", "reason": reason, **facts}
        return found

    def close(self, status: str | None = "complete", **fields: Any) -> None:
        """End what records, write what is finished, and close the writer with `status` (None leaves it open)."""
        if self.closed:
            return
        self.closed = True
        self._guarded(self._end_window)
        if self._memory is not None:
            self._memory.abandon("the run ended within the step that is weighed")
        self._guarded(self._write_last)
        if self._log is not None:
            self._log.close()
        facts: dict[str, Any] = {
            "channels": self.channels,
            "steps_recorded": self.steps,
            "overhead": {
                "hook_s_per_step": self.hook_s_per_step,
                "window_cost_s": self.window_cost_s,
                "steps_in_cycles": min(self.steps, len(self._phases)),
            },
        }
        if self.problems:
            facts["problems"] = self.problems
        try:
            if status is None:
                self.writer.manifest(**facts, **fields)
            else:
                status = "incomplete" if self.incomplete and status == "complete" else status
                self.writer.close(status, **facts, **fields)
        except ForetraceError as error:
            self.warn(str(error))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.close("interrupted" if interrupted else "failed" if kind is not None else "complete")

    # -- schedule -----------------------------------------------------------------------------------------------

    def _plan(self, wait: int, warmup: int, active: int, repeat: int) -> list[str]:
        """The phase of every step of all cycles; later steps are done."""
        weighs = self._memory is not None
        warming = [WARMUP] * warmup
        if weighs and warmup:
            warming[-1] = WEIGHED
        watching = [TIMED] * active
        if any(channel.name == "ops" for channel in self._channels):
            watching[-1] = DESCRIBED
        cycle = [WAIT] * wait + warming + watching
        # Without warmup the step after the first window is weighed.
        return cycle + [WEIGHED] * (weighs and not warmup) + cycle * (repeat - 1)

    def _advance(self, end_s: float) -> None:
        """The present step of a cycle ended: note it, and enter the next one."""
        if self._phase in (TIMED, DESCRIBED):
            self._window.append(
                StepWindow(
                    self.steps - 1, self._start_s - self._origin_s, end_s - self._origin_s, self._phase == DESCRIBED
                )
            )
        before, following = self._phase, self._phases[self.steps] if self.steps < len(self._phases) else DONE
        self._guarded(lambda: self._leave(before, following))
        self._guarded(lambda: self._enter(following))

    def _leave(self, before: str, following: str) -> None:
        if before == WEIGHED and self._memory is not None:
            self._memory.stop()
            self._write_rows(self._memory.rows([]))
            if following == DONE:
                self._write_last()
        if before in (TIMED, DESCRIBED) and (following not in (TIMED, DESCRIBED) or before == DESCRIBED):
            self._end_window()
            if following == DONE:
                self._write_last()

    def _enter(self, phase: str) -> None:
        before, self._phase = self._phase, phase
        self._profiled = phase not in (WAIT, DONE)
        reads = any(channel.name in ("ops", "collectives") for channel in self._channels)
        if phase in (WARMUP, WEIGHED) and reads and self._recording.event_s is None:
            self._recording.warm_up()
        if phase == WEIGHED and self._memory is not None:
            self._memory.start()
        elif phase in (TIMED, DESCRIBED):
            if before == TIMED:
                if phase == DESCRIBED:
                    self._recording.describe()
                return
            for channel in self._channels:
                channel.start()
            if reads:
                self._recording.start(described=phase == DESCRIBED)

    def _end_window(self) -> None:
        """Stop the channels and write what they have of the finished steps."""
        steps, self._window = self._window, []
        if self._phase not in (TIMED, DESCRIBED):
            return
        self._recording.stop()
        for channel in self._channels:
            channel.stop()
        if not steps:
            return
        self._recorded_steps += len(steps)
        events: list[dict[str, Any]] = []
        for channel in self._channels:
            rows = channel.rows(steps)
            events += _shifted(rows.pop("events", []), len(events))
            self._write_rows(rows)
        self._write_rows({"events": events})
        self._recording.events, self._recording.nodes = [], {}

    def _write_last(self) -> None:
        """Once, as soon as the last cycle is over: a run that is killed later has it all."""
        channels, self._last = self._last, []
        for channel in channels:
            self._write_rows(channel.last_rows())
        if channels and not self.closed:
            self.writer.manifest(channels=self.channels)

    # -- channels -----------------------------------------------------------------------------------------------

    def _make_channels(self, optimizers: Callable[[], Sequence[Any]]) -> list[Channel]:
        """Those of the active window that can record here; why the others do not goes into `channels`."""
        unknown = self._names - set(CHANNELS)
        if unknown:
            raise UsageError(f"channel {sorted(unknown)[0]!r} is not known; known are {', '.join(CHANNELS)}")
        rank = self.writer.rank

        def clock() -> float:
            return self._clock() - self._origin_s

        candidates: dict[str, Callable[[], Channel]] = {
            "ops": lambda: OpsChannel(self._recording, rank=rank, processes=local_processes()),
            "collectives": lambda: CollectivesChannel(self._recording, rank=rank),
            "memory": lambda: MemoryChannel(optimizers, rank=rank, clock=clock),
            "power": lambda: PowerChannel(rank=rank, clock=clock),
            "host": lambda: HostChannel(rank=rank, clock=clock),
        }
        made: list[Channel] = []
        for name, make in candidates.items():
            if name not in self._names:
                self._statuses[name] = {"status": "off", "reason": "not asked for"}
                continue
            try:
                channel = make()
                why = channel.unavailable()
            except Exception as error:  # a channel must not stop the run, whatever its library does
                why = f"{type(error).__name__}: {error}"
            if why is not None:
                self._statuses[name] = {"status": None, "reason": why}
            elif isinstance(channel, MemoryChannel):
                self._memory = channel
            else:
                made.append(channel)
        self._last = [*made, *([self._memory] if self._memory else [])]
        return made

    def _all_channels(self) -> list[Channel]:
        return [*self._channels, *([self._memory] if self._memory is not None else [])]

    # -- writing ------------------------------------------------------------------------------------------------

    def _refused(self, error: ForetraceError) -> None:
        self._broken = self.incomplete = True
        self.warn(f"{error}; later steps are not recorded")

    def _write_rows(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        for table, found in rows.items():
            if found and not self.incomplete:
                try:
                    self.writer.write(table, found)
                except ForetraceError as error:
                    self.incomplete = True
                    self.warn(str(error))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run what must not break the user's training loop."""
        try:
            action()
        except Exception as error:
            self.warn(f"recording stopped after step {self.steps}: {type(error).__name__}: {error}")
            self._phase = DONE
            with suppress(Exception):
                self._recording.stop()
            if os.environ.get("FORETRACE_DEBUG"):
                raise


def _forget_in_children(session: Session) -> None:
    """A forked process, such as a data loader's, has the session but must not write with it."""
    reference = weakref.ref(session)

    def close() -> None:
        if (found := reference()) is not None:
            found.closed = True

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=close)


def check_schedule(*, wait: int, warmup: int, active: int, repeat: int) -> None:
    """Raise `UsageError` for a schedule that makes no sense."""
    for name, value, least in (("wait", wait, 0), ("warmup", warmup, 0), ("active", active, 1), ("repeat", repeat, 1)):
        if value < least:
            raise UsageError(f"schedule: {name} must be at least {least}, found {value}")


def _shifted(events: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    """Events whose `parent` counts from `by` on."""
    for event in events:
        if event.get("parent") is not None:
            event["parent"] += by
    return events
