"""Devices as NVML sees them, behind an interface of four calls, with a fake that replays recorded answers.

Three numberings exist: the framework's device index (what `cuda:0` means), the driver's index (NVML), and the visible
devices variable between them. Every sample here is by framework index; the map is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

FIELDS = {
    "power_mw": ("power", "W", 1e-3),
    "energy_mj": ("energy", "J", 1e-3),
    "utilization_pct": ("utilization", "%", 1.0),
}
"""NVML's answer -> (name of the sample, unit, factor)."""

REASONS = {
    "NVML_ERROR_NOT_SUPPORTED": "this device does not support it",
    "NVML_ERROR_NO_PERMISSION": "no permission",
    "NVML_ERROR_GPU_IS_LOST": "the device was lost",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "driver and library versions mismatch (a driver was updated while the old one is loaded); reboot or reload the "
        "kernel module"
    ),
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no NVIDIA driver library on this machine",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
}


class NvmlError(Exception):
    """NVML refused; `code` is its name for why, `NVML_ERROR_...`."""

    def __init__(self, code: str) -> None:
        super().__init__(REASONS.get(code, code))
        self.code = code


class Nvml(Protocol):
    """What the power channel asks. All of it may raise `NvmlError`. `index` is the driver's."""

    def open(self) -> None:
        """Load the driver's library."""

    def uuids(self) -> list[str]:
        """One for each device, by driver index."""

    def name(self, index: int) -> str:
        """Product name."""

    def ask(self, index: int, field: str) -> float:
        """One of `power_mw`, `energy_mj` (since the driver was loaded), `utilization_pct`, `memory_total_bytes`."""


class LiveNvml:
    """The real one, through nvidia-ml-py; it imports it in `open` only."""

    def open(self) -> None:
        """Raises `NvmlError` when there is no driver or it does not match its library."""
        try:
            import pynvml
        except ModuleNotFoundError:
            raise NvmlError("nvidia-ml-py is not installed") from None
        self._nvml = pynvml
        self._call(pynvml.nvmlInit)
        self._handles = [
            self._call(pynvml.nvmlDeviceGetHandleByIndex, n) for n in range(self._call(pynvml.nvmlDeviceGetCount))
        ]

    def uuids(self) -> list[str]:
        """`GPU-...`, by driver index."""
        return [str(self._call(self._nvml.nvmlDeviceGetUUID, handle)) for handle in self._handles]

    def name(self, index: int) -> str:
        """Product name."""
        return str(self._call(self._nvml.nvmlDeviceGetName, self._handles[index]))

    def ask(self, index: int, field: str) -> float:
        """One field of one device."""
        handle = self._handles[index]
        if field == "power_mw":
            return float(self._call(self._nvml.nvmlDeviceGetPowerUsage, handle))
        if field == "energy_mj":
            return float(self._call(self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle))
        if field == "utilization_pct":
            return float(self._call(self._nvml.nvmlDeviceGetUtilizationRates, handle).gpu)
        return float(self._call(self._nvml.nvmlDeviceGetMemoryInfo, handle).total)

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            names = {value: name for name, value in vars(self._nvml).items() if name.startswith("NVML_ERROR_")}
            raise NvmlError(names.get(error.value, str(error))) from error


class ReplayedNvml:
    """Answers from data: `devices` as a list of field -> value or name of an error, or an error at `open`."""

    def __init__(self, devices: Sequence[Mapping[str, Any]] = (), *, open_error: str | None = None) -> None:
        self._devices = devices
        self._open_error = open_error
        self.asked: list[tuple[int, str]] = []

    def open(self) -> None:
        """Raises the recorded error, if there is one."""
        if self._open_error:
            raise NvmlError(self._open_error)

    def uuids(self) -> list[str]:
        """As recorded, or made up from the index."""
        return [str(device.get("uuid", f"GPU-{index:08d}")) for index, device in enumerate(self._devices)]

    def name(self, index: int) -> str:
        """As recorded."""
        return str(self._devices[index]["name"])

    def ask(self, index: int, field: str) -> float:
        """As recorded."""
        self.asked.append((index, field))
        answer = self._devices[index][field]
        if isinstance(answer, str):
            raise NvmlError(answer)
        return float(answer)


def visible_devices(uuids: Sequence[str], variable: str | None) -> dict[int, int]:
    """Framework index -> driver index under a value of `CUDA_VISIBLE_DEVICES` (None is not set), in bus order.

    A UUID may be cut short while it stays unique; the first entry that names no device ends the list, as it does for
    the CUDA runtime.
    """
    if variable is None:
        return {index: index for index in range(len(uuids))}
    found: list[int] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.lstrip("+").isdigit():
            matches = [int(entry)] if int(entry) < len(uuids) else []
        else:
            matches = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in found:
            break
        found += matches
    return dict(enumerate(found))
