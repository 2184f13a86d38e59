"""The gates of each table, and where they send its rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from . import faults, physics, wires
from .columns import APART, FIT, SCORE, SUSPECT
from .gate import Gate, limits


def _gates(part: str, *functions: Callable[[pd.DataFrame], np.ndarray]) -> tuple[Gate, ...]:
    return tuple(Gate(function.__name__, part, function) for function in functions)


GATES: dict[str, tuple[Gate, ...]] = {
    "ops": (
        *_gates(
            SUSPECT, faults.told_by_the_table, physics.above_compute_peak, physics.above_memory_bandwidth,
            physics.below_a_thousandth, physics.backward_under_half_its_forward, faults.tpu_vector_fused_away,
            faults.below_clock_resolution, faults.gh200_embedding_above_bandwidth,
            faults.gh200_optimizer_ignores_bytes,
        ),
        *_gates(APART, faults.p4_contradicts_itself),
        *_gates(SCORE, faults.own_test_split, faults.shape_of_a_test_row, faults.in_the_wild, faults.held_out_problem),
    ),
    "collectives": (
        *_gates(SUSPECT, faults.told_by_the_table, wires.bus_over_link),
        *_gates(SCORE, faults.held_out_size),
    ),
    "steps": _gates(SCORE, faults.in_the_wild),
    "model_ops": _gates(SCORE, faults.in_the_wild),
}  # fmt: skip
"""Gates of each table. A row goes to the first of suspect, apart, score that any gate sends it to, else it is fit."""


def judge(rows: pd.DataFrame, table: str) -> dict[str, int]:
    """Fill `part` and `reason` of the rows, in place; how many rows each gate found."""
    seen = limits(rows)
    parts = np.full(len(rows), FIT, dtype=object)
    reasons = np.full(len(rows), "", dtype=object)
    found: dict[str, int] = {}
    for gate in GATES[table]:
        mask = gate.finds(seen)
        if not mask.any():
            continue
        found[gate.name] = int(mask.sum())
        # An earlier part is the graver one: a suspect row that is also a test row is suspect.
        here = mask & ((parts == FIT) | (parts == gate.part))
        again = here & (reasons != "")
        reasons[here & ~again] = gate.name
        reasons[again] += "+" + gate.name
        parts[here] = gate.part
    rows["part"], rows["reason"] = parts, reasons
    return found
