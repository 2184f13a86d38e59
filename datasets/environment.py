"""What this process may use of its machine: cores by affinity and quota, memory, caches, software versions.

A container shows every CPU of its host; what it may use is the smaller of the affinity mask and the control group's
quota. Every fact that cannot be read is None.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
CPU_SYSFS = Path("/sys/devices/system/cpu")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Cores:
    """CPU cores that this process may use."""

    affinity: int
    """Logical CPUs in the affinity mask."""
    quota: float | None
    """CPU time per wall time that the control groups grant; None without a quota."""

    @property
    def usable(self) -> int:
        """Threads worth starting: the smaller of both, whole, at least 1 (half a CPU still runs one thread)."""
        return max(1, int(min(self.affinity, self.quota if self.quota is not None else self.affinity)))


def usable_cores() -> Cores:
    """Cores of this process, now."""
    return Cores(affinity=affinity(), quota=quota_cores())


def affinity() -> int:
    """Logical CPUs in the affinity mask of this process; all of them where there are no masks."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def quota_cores(root: Path = CGROUP_ROOT, memberships: str | None = None) -> float | None:
    """The tightest CPU quota of the control groups around this process in cores; None when there is none.

    `root` is where control groups are mounted, `memberships` the text of `/proc/self/cgroup` (None reads it). Reads
    version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`); a quota of any ancestor holds as well.
    """
    quotas = []
    for folder in _group_folders(root, memberships, "cpu"):
        if (text := _read(folder / "cpu.max")) is not None:
            quota, _, period = text.strip().partition(" ")
            quotas.append(_ratio(quota, period or "100000"))
        elif (text := _read(folder / "cpu.cfs_quota_us")) is not None:
            quotas.append(_ratio(text.strip(), _read(folder / "cpu.cfs_period_us") or ""))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_bytes(root: Path = CGROUP_ROOT, memberships: str | None = None) -> int | None:
    """Memory of this machine or the control group's limit, whichever is smaller; None when neither can be read."""
    import psutil

    limits = [psutil.virtual_memory().total]
    for folder in _group_folders(root, memberships, "memory"):
        text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if text is not None and text.strip().isdigit():
            limits.append(int(text))
    return min((limit for limit in limits if limit > 0), default=None)


def cpu_model() -> str | None:
    """The CPU's name; None when it cannot be read."""
    for line in (_read(PROC / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    return platform.processor() or None


def caches_bytes(root: Path = CPU_SYSFS) -> dict[str, int]:
    """Data and unified caches as one core sees them, `{"L1d": 32768, "L2": ..., "L3": ...}`; empty when unreadable."""
    found: dict[str, int] = {}
    for folder in sorted((root / "cpu0" / "cache").glob("index*")):
        kind, level, size = (_read(folder / name) for name in ("type", "level", "size"))
        if kind is None or level is None or size is None or kind.strip() == "Instruction":
            continue
        name = f"L{level.strip()}" + ("d" if kind.strip() == "Data" else "")
        units = {"K": 1024, "M": 1024**2, "G": 1024**3}
        text = size.strip()
        number = text.rstrip("KMG")
        if number.isdigit():
            found[name] = int(number) * units.get(text[len(number) :], 1)
    return found


def library_version(name: str) -> str | None:
    """Version of an installed distribution, without importing it; None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver_version() -> str | None:
    """Version of the NVIDIA driver; None without one. Starts no device."""
    text = _read(PROC / "driver" / "nvidia" / "version")
    for word in (text or "").split():
        if word.count(".") >= 1 and word.replace(".", "").isdigit():
            return word
    return None


def blas() -> str | None:
    """The BLAS that torch was built with; None when torch is not imported in this process."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for name in ("mkl", "openblas"):
        backend = getattr(torch.backends, name, None)
        if backend is not None and backend.is_available():
            return name
    for name in ("openblas", "mkl", "accelerate", "nvpl", "blis"):
        if f"BLAS_INFO={name}" in torch.__config__.show().lower().replace("blas_info", "BLAS_INFO"):
            return name
    return None


def environment() -> dict[str, Any]:
    """Facts about this process and its machine for a manifest or device file; what cannot be read is None.

    Never imports torch; `torch_threads` and `blas` are known only when it is already imported.
    """
    cores = usable_cores()
    torch = sys.modules.get("torch")
    return {
        "python": platform.python_version(),
        "torch": library_version("torch"),
        "numpy": library_version("numpy"),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
        "usable_cores": cores.usable,
        "affinity": cores.affinity,
        "quota_cores": cores.quota,
        "memory_bytes": memory_bytes(),
        "caches_bytes": caches_bytes(),
        "driver": driver_version(),
        "blas": blas(),
        "torch_threads": torch.get_num_threads() if torch is not None else None,
        "thread_variables": {name: os.environ.get(name) for name in THREAD_VARIABLES},
    }


def _ratio(quota: str, period: str) -> float | None:
    """Cores of a quota and its period in microseconds; None for `max`, -1 and what is no number."""
    try:
        quota_us, period_us = int(quota), int(period)
    except ValueError:
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _group_folders(root: Path, memberships: str | None, controller: str) -> list[Path]:
    """Folders of the control groups that hold this process, innermost first, the mount itself last."""
    text = memberships if memberships is not None else (_read(PROC / "self" / "cgroup") or "")
    folders: list[Path] = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        controllers, path = parts[1], parts[2].strip("/")
        if controllers == "":
            mount = root
        elif controller in controllers.split(","):
            mount = next((root / name for name in (controllers, controller) if (root / name).is_dir()), root)
        else:
            continue
        # Inside a container the path may be the host's and not exist here; its last existing parts still count.
        names = [name for name in path.split("/") if name and name != ".."]
        folders += [mount.joinpath(*names[:count]) for count in range(len(names), -1, -1)]
    folders += [root, root / controller]
    return list(dict.fromkeys(folders))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
