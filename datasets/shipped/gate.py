"""Gate: one reason to keep a row out of fitting, and the physical limits of devices that gates compare rows with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import catalog

UNKNOWN_CACHE_BYTES = 128 * 2**20
"""For a device whose on-chip memory is not stated: a TPU core's vector memory is of this size."""

_PEAKS = {
    "fp32": ("fp32", "fp32_matrix"), "fp16": ("fp16", "fp32"), "bf16": ("bf16", "fp16"), "fp8": ("fp8",),
    "fp8_block": ("fp8",), "nvfp4": ("fp4",), "fp16_mixed": ("fp16", "fp32"), "int8": ("int8",),
}  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """One reason to keep a row out of fitting."""

    name: str
    part: str
    """Where its rows go: SUSPECT, APART or SCORE."""
    finds: Callable[[pd.DataFrame], np.ndarray]
    """Mask over rows that have the columns of their table and of `limits`."""

    @property
    def why(self) -> str:
        """Its reason, from the function's docstring."""
        return " ".join((self.finds.__doc__ or "").split())


def limits(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with peak_flops_per_s (of their dtype), memory_bytes_per_s, cache_bytes, link_bytes_per_s and
    pcie_bytes_per_s of their device; NaN where the catalog does not know."""
    facts = {key: catalog.device(key) for key in rows["device"].unique()}
    rows = rows.copy()
    for name in ("memory_bytes_per_s", "link_bytes_per_s", "pcie_bytes_per_s"):
        rows[name] = rows["device"].map({key: getattr(each, name) for key, each in facts.items()}).astype(float)
    caches = {key: each.l2_bytes or UNKNOWN_CACHE_BYTES for key, each in facts.items()}
    rows["cache_bytes"] = rows["device"].map(caches).astype(float)
    if "dtype" not in rows:
        return rows
    pairs = rows[["device", "dtype"]].drop_duplicates().itertuples(index=False, name=None)
    peaks = {(key, dtype): _peak(facts[key].flops_per_s, dtype) for key, dtype in pairs}
    rows["peak_flops_per_s"] = [peaks[pair] for pair in zip(rows["device"], rows["dtype"], strict=True)]
    return rows


def _peak(flops_per_s: dict[str, float], dtype: str) -> float:
    """The largest rate that a dtype may run at; a half-precision op may run in fp32 arithmetic."""
    return max((flops_per_s[name] for name in _PEAKS.get(dtype, ()) if name in flops_per_s), default=np.nan)


def true(mask: pd.Series) -> np.ndarray:
    """A mask without gaps: what could not be compared is not flagged."""
    return mask.fillna(False).to_numpy(dtype=bool)
