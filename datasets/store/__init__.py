"""Run folders: parquet parts and a JSON manifest, written atomically by many writers at once.

Names are loaded on first use: `files` serves modules that must not import pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reader import RunFolder, is_run_folder, read_run
    from .writer import RUN_ID_VARIABLE, RunWriter, new_run_id

_HOMES = {
    **dict.fromkeys(("RunFolder", "is_run_folder", "read_run"), ".reader"),
    **dict.fromkeys(("RUN_ID_VARIABLE", "RunWriter", "new_run_id"), ".writer"),
}

__all__ = ["RUN_ID_VARIABLE", "RunFolder", "RunWriter", "is_run_folder", "new_run_id", "read_run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
