"""profiler: a real training run -> Profile.

Names are loaded on first use, so that `import foretrace.profiler` costs nothing and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import profile
    from .workload import run_workload

_HOMES = {"profile": ".api", "run_workload": ".workload"}

__all__ = ["profile", "run_workload"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
