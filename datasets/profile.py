"""Profile: what one real run was, read from its run folder."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from .errors import InputError, PlanError
from .plan import Plan
from .schemas import empty
from .store.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def _frame(table: str) -> pd.DataFrame:
    return empty(table).to_pandas()


@dataclass(eq=False, kw_only=True)
class Profile:
    """A measured run over all its ranks. Tables hold every schema column; an empty cell means "not known"."""

    path: Path
    manifest: dict[str, Any]
    """Of rank 0; of the lowest rank that has one when rank 0 has none."""
    manifests: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By rank."""
    ops: pd.DataFrame = field(default_factory=partial(_frame, "ops"))
    collectives: pd.DataFrame = field(default_factory=partial(_frame, "collectives"))
    host: pd.DataFrame = field(default_factory=partial(_frame, "host"))
    events: pd.DataFrame = field(default_factory=partial(_frame, "events"))
    steps: pd.DataFrame = field(default_factory=partial(_frame, "steps"))
    samples: pd.DataFrame = field(default_factory=partial(_frame, "samples"))
    memory: pd.DataFrame = field(default_factory=partial(_frame, "memory"))
    problems: list[str] = field(default_factory=list)
    """What of the folder could not be read, by name, and what was done about it."""

    @classmethod
    def load(cls, path: str | Path, *, repair: bool = True, tables: Sequence[str] | None = None) -> Profile:
        """Read a run folder; `tables` limits what is read, the others are empty then.

        Damaged files are set aside (renamed to `*.damaged`) when `repair` and the folder can be written, and named in
        `problems` either way. Raises `InputError` when there is no run to read.
        """
        run = read_run(path, repair=repair, tables=tables)
        kinds = {str(manifest.get("kind", "profile")) for manifest in run.manifests.values()}
        if other := sorted(kinds - {"profile"}):
            raise InputError(f"{path}: is a run folder of kind {other[0]!r}, expected 'profile'")
        manifest = run.manifests[min(run.manifests)] if run.manifests else {}
        told = [str(problem) for one in run.manifests.values() for problem in one.get("problems") or []]
        frames = {name: table.to_pandas() for name, table in run.tables.items()}
        return cls(path=Path(path), manifest=manifest, manifests=run.manifests, problems=run.problems + told, **frames)

    @property
    def status(self) -> str:
        """`complete`; or how the first rank that did not complete ended; `unfinished` when a writer never closed."""
        if not self.manifests:
            return "unfinished"
        ends = [str(manifest.get("status", "running")) for _, manifest in sorted(self.manifests.items())]
        ends = ["unfinished" if end == "running" else end for end in ends]
        if "unfinished" in ends:
            return "unfinished"
        return next((end for end in ends if end != "complete"), "complete")

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that ran; None when the manifest has none. Raises `InputError` when it cannot be read."""
        data = self.manifest.get("plan")
        if data is None:
            return None
        if not isinstance(data, dict):
            raise InputError(f"{self.path}: manifest.json: plan must be a JSON object, found {type(data).__name__}")
        try:
            return Plan.from_dict(data)
        except PlanError as error:
            raise InputError(f"{self.path}: manifest.json: {error}") from error

    @property
    def world_size(self) -> int:
        """Ranks of the run."""
        return int(self.manifest.get("world_size") or max(1, len(self.manifests)))

    @cached_property
    def step_times(self) -> list[float]:
        """Seconds of each step that counts for `step_time_s`, in order: the slowest rank's."""
        return self._step_times[0]

    @cached_property
    def _step_times(self) -> tuple[list[float], str | None]:
        """Times, and why there are none."""
        steps = self.steps
        if not len(steps):
            return [], "no step was recorded"
        ranks = steps["rank"].nunique()
        by_step = steps.groupby("step").agg(
            time_s=("time_s", "max"),
            skipped=("skipped", "any"),
            profiled=("profiled", "any"),
            ranks=("rank", "nunique"),
        )
        done = by_step[(by_step["ranks"] == ranks) & by_step["time_s"].notna()]
        if not len(done):
            return [], f"no step was recorded by all {ranks} ranks"
        done = done[~done["skipped"].astype(bool)]
        if not len(done):
            return [], "every recorded step was skipped"
        plain = done[~done["profiled"].astype(bool)]
        return [float(time_s) for time_s in (plain if len(plain) else done)["time_s"]], None

    @property
    def step_time_s(self) -> float | None:
        """Median seconds of a step: of the slowest rank, over steps that all ranks finished, that were not skipped and
        lay outside the active window (inside it when there are no others). None with `step_time_reason`."""
        return median(self.step_times) if self.step_times else None

    @property
    def step_time_reason(self) -> str | None:
        """Why `step_time_s` is None; None when it is known."""
        return self._step_times[1]

    @property
    def step_spread(self) -> float | None:
        """Half interquartile range over median of the same steps; None with fewer than two."""
        times = self.step_times
        if len(times) < 2:
            return None
        low, _, high = quantiles(times, n=4, method="inclusive")
        return (high - low) / 2 / median(times)

    @property
    def peak_memory_bytes(self) -> int | None:
        """Largest peak of any rank: of tracked tensors (`total`), else of the process. None when neither was read."""
        return self._peak_memory[0]

    @property
    def peak_memory_reason(self) -> str | None:
        """Why `peak_memory_bytes` is None; None when it is known."""
        return self._peak_memory[1]

    @cached_property
    def _peak_memory(self) -> tuple[int | None, str | None]:
        reasons: list[str] = []
        for category in ("total", "process"):
            rows = self.memory[self.memory["category"] == category]
            known = rows["peak_bytes"].dropna()
            if len(known):
                return int(known.max()), None
            reasons += [str(reason) for reason in rows["reason"].dropna()]
        channel = (self.manifest.get("channels") or {}).get("memory") or {}
        reasons.append(str(channel.get("reason") or "the memory channel recorded nothing"))
        return None, reasons[0]

    def facts(self) -> list[tuple[str, str]]:
        """What a reader wants first, as (label, text)."""
        manifest = self.manifest
        found: list[tuple[str, str]] = [("run", str(self.path)), ("status", self.status)]
        workload = manifest.get("workload")
        if workload is not None:
            found.append(
                ("workload", str(workload.get("reference", workload) if isinstance(workload, dict) else workload))
            )
        elif manifest.get("command"):
            command = manifest["command"]
            found.append(("command", " ".join(map(str, command)) if isinstance(command, list) else str(command)))
        if self.plan is not None:
            found.append(("plan", str(self.plan)))
        found.append(("ranks", str(self.world_size)))
        if self.step_time_s is None:
            found.append(("step", f"not known: {self.step_time_reason}"))
        else:
            spread = "" if self.step_spread is None else f" ± {100 * self.step_spread:.1f} %"
            found.append(("step", f"{1e3 * self.step_time_s:.2f} ms{spread}, median of {len(self.step_times)}"))
        peak, reason = self._peak_memory
        found.append(("peak memory", f"not known: {reason}" if peak is None else _size(peak)))
        counts = ("ops", "collectives", "host", "events", "samples")
        found.append(("rows", ", ".join(f"{len(getattr(self, name))} {name}" for name in counts)))
        for name, channel in sorted((manifest.get("channels") or {}).items()):
            if isinstance(channel, dict) and channel.get("status") != "recorded":
                found.append((f"channel {name}", f"{channel.get('status') or 'null'}: {channel.get('reason')}"))
        found += [("problem", problem) for problem in self.problems]
        return found

    def __str__(self) -> str:
        return "\n".join(f"{label:<12} {text}" for label, text in self.facts())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>"
            for label, text in self.facts()
        )
        return f"<table>{rows}</table>"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:.1f} KiB"
