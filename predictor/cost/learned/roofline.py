"""Roofline bound of op rows: no price is far below it."""

from __future__ import annotations

import numpy as np

from ....datasets.ops.table import OpTable
from ..analytic.accelerator.facts import DATASHEET, RATE

NO_BOUND_S = 1e-9
"""Bound of a row of whose work nothing is known."""


def roofline_s(table: OpTable, facts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """max(FLOPs / peak, bytes / bandwidth) in seconds, (rows,); 1 ns for a row of whose work nothing is known."""
    row = facts[at]
    flops, moved = table.flops, table.bytes
    seconds = np.fmax(flops / row[:, DATASHEET], moved / row[:, RATE])
    return np.fmax(seconds, NO_BOUND_S)
