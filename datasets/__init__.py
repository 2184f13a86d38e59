"""The ground floor: what profiler, predictor and cli all speak. Imports nothing else of ours.

Row schemas, op families (dims, FLOPs, bytes; no seconds), Plan, workload specs and their loader, the run store, errors.

Names are loaded on first use, so that `import foretrace.datasets` costs nothing and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .environment import Cores, usable_cores
    from .errors import (
        ForetraceError,
        InputError,
        MissingExtraError,
        PlanError,
        Regression,
        RunError,
        SchemaError,
        UnsupportedError,
        UsageError,
    )
    from .machine import Machine
    from .ops import Op, TensorMeta, canonical
    from .plan import Plan
    from .profile import Profile
    from .schemas import SCHEMA_VERSION, TABLES, validate
    from .store import RunWriter
    from .workloads import Workload

_HOMES = {
    **dict.fromkeys(("Cores", "usable_cores"), ".environment"),
    **dict.fromkeys(
        (
            "ForetraceError", "InputError", "MissingExtraError", "PlanError", "Regression", "RunError", "SchemaError",
            "UnsupportedError", "UsageError",
        ),
        ".errors",
    ),
    "Machine": ".machine",
    **dict.fromkeys(("Op", "TensorMeta", "canonical"), ".ops"),
    "Plan": ".plan",
    "Profile": ".profile",
    **dict.fromkeys(("SCHEMA_VERSION", "TABLES", "validate"), ".schemas"),
    "RunWriter": ".store",
    "Workload": ".workloads",
}  # fmt: skip

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Cores",
    "ForetraceError",
    "InputError",
    "Machine",
    "MissingExtraError",
    "Op",
    "Plan",
    "PlanError",
    "Profile",
    "Regression",
    "RunError",
    "RunWriter",
    "SchemaError",
    "TensorMeta",
    "UnsupportedError",
    "UsageError",
    "Workload",
    "canonical",
    "usable_cores",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
