"""The power channel: power and energy of the devices (NVML) and of the CPU packages (RAPL)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .channel import Rows, StepWindow
from .host import sample_rows
from .nvml import FIELDS, LiveNvml, Nvml, NvmlError, visible_devices
from .sampler import Sample, Sampler

RAPL = Path("/sys/class/powercap")


class PowerChannel:
    """Probes once what each device answers, then samples that only. `nvml` and `rapl` are for tests."""

    name = "power"

    def __init__(
        self,
        *,
        rank: int,
        clock: Callable[[], float] = time.perf_counter,
        nvml: Nvml | None = None,
        rapl: Path = RAPL,
        visible: str | None = None,
    ) -> None:
        self._rank = rank
        self._nvml = nvml or LiveNvml()
        self._rapl = rapl
        self._visible = visible if visible is not None else os.environ.get("CUDA_VISIBLE_DEVICES")
        self._sampler = Sampler(self.read, clock=clock)
        self._fields: dict[int, list[str]] = {}  # framework index -> fields that it answers
        self._zones: list[Path] = []
        self.devices: dict[str, dict[str, Any]] = {}
        """By framework index as text: driver index, uuid, name, and why each missing field is missing."""
        self._driver: dict[int, int] = {}
        self._seen = False
        self._energy: dict[str, dict[str, Any]] = {}

    def unavailable(self) -> str | None:
        """None when at least one power or energy counter answers, else why none does."""
        reasons = [why for why in (self._probe_nvml(), self._probe_rapl()) if why]
        return None if self._zones or any(self._fields.values()) else "; ".join(reasons)

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()

    def stop(self) -> None:
        """End."""
        self._sampler.stop()

    def read(self, time_s: float) -> list[Sample]:
        """One sample of everything that answers; a device that was lost is not asked again."""
        found = []
        for index, fields in self._fields.items():
            for field in list(fields):
                name, unit, factor = FIELDS[field]
                try:
                    value = self._nvml.ask(self._driver[index], field) * factor
                except NvmlError as error:
                    lost = error.code == "NVML_ERROR_GPU_IS_LOST"
                    self.devices[str(index)]["missing"][name] = str(error)
                    self._fields[index] = [] if lost else [other for other in self._fields[index] if other != field]
                    if lost:
                        break
                    continue
                found.append(Sample(f"cuda:{index}.{name}", unit, time_s, value))
        for zone in self._zones:
            try:
                value = int((zone / "energy_uj").read_text()) * 1e-6
            except (OSError, ValueError):
                found.append(Sample(f"{_zone_name(zone)}.energy", "J", time_s, None))
                continue
            found.append(Sample(f"{_zone_name(zone)}.energy", "J", time_s, value))
        return found

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """Samples of the window; its energy goes into `facts`."""
        samples = self._sampler.samples
        self._seen |= bool(samples)
        for name in sorted({one.name.rpartition(".")[0] for one in samples}):
            self._energy[name] = energy_of(samples, name, self._wrap_j(name))
        return {"samples": sample_rows(samples, "power", self._rank)}

    def last_rows(self) -> Rows:
        """Nothing more."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Devices, the map of indices, and the energy of the last window with how it was told."""
        found: dict[str, Any] = {"devices": self.devices, "energy": self._energy}
        return found if self._seen else {**found, "reason": "the run ended before the active window began"}

    def _probe_nvml(self) -> str | None:
        try:
            self._nvml.open()
            uuids = self._nvml.uuids()
        except NvmlError as error:
            return f"NVML: {error}"
        self._driver = visible_devices(uuids, self._visible)
        for index, driver_index in self._driver.items():
            missing: dict[str, str] = {}
            try:
                name: str | None = self._nvml.name(driver_index)
            except NvmlError:
                name = None
            facts: dict[str, Any] = {
                "driver_index": driver_index, "uuid": uuids[driver_index], "name": name, "missing": missing,
                "memory_total_bytes": None,
            }  # fmt: skip
            self.devices[str(index)] = facts
            self._fields[index] = []
            for field in (*FIELDS, "memory_total_bytes"):
                label = FIELDS[field][0] if field in FIELDS else "memory_total"
                try:
                    answer = self._nvml.ask(driver_index, field)
                except NvmlError as error:
                    missing[label] = str(error)
                    if error.code == "NVML_ERROR_GPU_IS_LOST":
                        missing |= {one: str(error) for one in ("power", "energy", "utilization", "memory_total")}
                        break
                    continue
                if field in FIELDS:
                    self._fields[index].append(field)
                else:
                    facts["memory_total_bytes"] = int(answer)
            # A slice of a device has no utilisation of its own, and its power is the whole board's.
            if "MIG" in (name or ""):
                facts["note"] = "power and energy belong to the whole board, not to one slice"
        return None if self._driver else "NVML: no device is visible to this process"

    def _probe_rapl(self) -> str | None:
        try:
            zones = sorted(zone for zone in self._rapl.glob("intel-rapl:*") if zone.name.count(":") == 1)
        except OSError:
            zones = []
        if not zones:
            return f"RAPL: {self._rapl} has no energy counters (no such CPU, or a virtual machine)"
        for zone in zones:
            try:
                int((zone / "energy_uj").read_text())
            except (OSError, ValueError) as error:
                return f"RAPL: {zone / 'energy_uj'} cannot be read ({getattr(error, 'strerror', None) or error})"
            self._zones.append(zone)
        return None

    def _wrap_j(self, name: str) -> float | None:
        """Where a CPU counter starts again at 0; None for what does not."""
        for zone in self._zones:
            if _zone_name(zone) == name:
                try:
                    return int((zone / "max_energy_range_uj").read_text()) * 1e-6
                except (OSError, ValueError):
                    return None
        return None


def energy_of(samples: Sequence[Sample], name: str, wrap_j: float | None = None) -> dict[str, Any]:
    """Joules between the first and last sample: from the counter, else from power over time, marked as such."""
    counter = [one for one in samples if one.name == f"{name}.energy" and one.value is not None]
    if len(counter) > 1:
        joules = (counter[-1].value or 0.0) - (counter[0].value or 0.0)
        if joules < 0 and wrap_j:
            joules += wrap_j
        seconds = counter[-1].time_s - counter[0].time_s
        return {"energy_j": joules if joules >= 0 else None, "seconds_s": seconds, "from": "counter"}
    power = [one for one in samples if one.name == f"{name}.power" and one.value is not None]
    if len(power) > 1:
        joules = sum(
            ((first.value or 0.0) + (second.value or 0.0)) / 2 * (second.time_s - first.time_s)
            for first, second in pairwise(power)
        )
        return {"energy_j": joules, "seconds_s": power[-1].time_s - power[0].time_s, "from": "integrated power samples"}
    return {"energy_j": None, "seconds_s": None, "from": None, "reason": "fewer than two samples of power or energy"}


def _zone_name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip().replace(".", "-")
    except OSError:
        return zone.name
