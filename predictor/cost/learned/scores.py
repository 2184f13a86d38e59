"""Errors of prices against measurements: by op, device and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....datasets.ops.table import OpTable
from .pricer import OpPrices


def scores_of(table: OpTable, prices: OpPrices, measured_s: np.ndarray) -> dict[str, list[dict[str, Any]]]:
    """Title -> rows; rows without a positive measurement are not counted."""
    good = np.isfinite(measured_s) & (measured_s > 0)
    found = {"all": [score("all rows", prices, measured_s, good)]}
    for title, labels in (
        ("op", table.op),
        ("device", table.device),
        ("dtype", table.dtype),
        ("source", prices.source),
    ):
        masks = [(name, labels.are(name) & good) for name in sorted(set(labels.names))]
        found[title] = [score(name, prices, measured_s, mask) for name, mask in masks if mask.any()]
    return found


def score(name: str, prices: OpPrices, measured_s: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """Per cent: mean and median |predicted / measured - 1|, bias (median), error weighted by time, rows in interval."""
    if not mask.any():
        return {"name": name, "rows": 0, "mean": None, "median": None, "bias": None, "time_weighted": None,
                "coverage": None}  # fmt: skip
    measured, predicted = measured_s[mask], prices.time_s[mask]
    error = 100.0 * (predicted / measured - 1.0)
    inside = (prices.low_s[mask] <= measured) & (measured <= prices.high_s[mask])
    return {
        "name": name, "rows": int(mask.sum()), "mean": float(np.abs(error).mean()),
        "median": float(np.median(np.abs(error))), "bias": float(np.median(error)),
        "time_weighted": float(100.0 * np.abs(predicted - measured).sum() / measured.sum()),
        "coverage": float(100.0 * inside.mean()),
    }  # fmt: skip
