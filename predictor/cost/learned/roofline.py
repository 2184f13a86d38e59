"""Roofline bound of op rows: no price is far below it."""

from __future__ import annotations

import numpy as np

from ....datasets.ops.table import OpTable
from ..analytic.accelerator.facts import DATASHEET, ELEMENT, OUTPUT, RATE
from .families import NAMES, families_of


def roofline_s(table: OpTable, facts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """max(FLOPs / peak, bytes / bandwidth) in seconds, (rows,).

    FLOPs and bytes are the row's own where it has them; for GEMMs and attention they are counted from the dims where
    it does not. A row with neither has the bound 1 ns.
    """
    row = facts[at]
    flops, moved = table.flops.copy(), table.bytes.copy()
    gemm = (families_of(table) == NAMES.index("gemm")) & np.isnan(flops)
    b = np.where(np.isnan(table.b), 1.0, table.b)
    flops[gemm] = (2.0 * b * table.m * table.n * table.k)[gemm]
    gemm &= np.isnan(moved)
    inputs = (table.m * table.k + table.k * table.n) * row[:, ELEMENT]
    moved[gemm] = (b * (inputs + table.m * table.n * row[:, OUTPUT]))[gemm]
    seconds = np.fmax(flops / row[:, DATASHEET], moved / row[:, RATE])
    return np.fmax(seconds, 1e-9)
