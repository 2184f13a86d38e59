"""Gates for what is known to be wrong with one source, and for rows that are scored and never fitted.

What the raw tables and their readers found; each docstring is the reason that the provenance gives.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .gate import true
from .shapes import HELD_OUT_PERCENT, hashed, held_out


def told_by_the_table(rows: pd.DataFrame) -> np.ndarray:
    """The raw table marks the row as suspect."""
    told = rows["reason"] == "told_by_the_table"
    return true(told | rows["split"].eq("suspect") if "split" in rows else told)


def tpu_vector_fused_away(rows: pd.DataFrame) -> np.ndarray:
    """Vector ops of a TPU inside a compiled graph are fused into their neighbours: their times are not theirs."""
    return true((rows["source"] == "llmservingsim") & rows["device"].str.startswith("TPU") & (rows["op"] != "matmul"))


def below_clock_resolution(rows: pd.DataFrame) -> np.ndarray:
    """Under 20 us by a clock that ticks once a microsecond."""
    return true((rows["source"] == "vidur") & (rows["time_s"] < 20e-6))


def gh200_embedding_above_bandwidth(rows: pd.DataFrame) -> np.ndarray:
    """GH200 embedding at more than its memory bandwidth: a clock or accounting error of the source."""
    here = (rows["source"] == "estimate-train-time") & (rows["device"] == "GH200-120GB") & (rows["op"] == "embedding")
    return true(here & (rows["bytes"] / rows["memory_bytes_per_s"] / rows["time_s"] > 1))


def gh200_optimizer_ignores_bytes(rows: pd.DataFrame) -> np.ndarray:
    """GH200 optimizer steps run from 0.02 to 4 times the memory bandwidth: times do not follow the parameters."""
    here = (rows["source"] == "estimate-train-time") & (rows["device"] == "GH200-120GB")
    return true(here & (rows["op"] == "optimizer_step"))


def p4_contradicts_itself(rows: pd.DataFrame) -> np.ndarray:
    """NeuSight's P4: train and test files are about 3x apart on linear."""
    return true((rows["source"] == "neusight") & (rows["device"] == "P4"))


def own_test_split(rows: pd.DataFrame) -> np.ndarray:
    """The source's own test rows."""
    return true(rows["split"] == "test")


def shape_of_a_test_row(rows: pd.DataFrame) -> np.ndarray:
    """The same op and dims as a row of the source's own test split, on whatever device."""
    if not (rows["split"] == "test").any():
        return np.zeros(len(rows), dtype=bool)
    same = ["op", "shape", "b", "m", "n", "k"]
    pair = rows[same].groupby(same, dropna=False, sort=False).ngroup()
    return true(pair.isin(set(pair[rows["split"] == "test"])) & (rows["split"] != "test"))


def in_the_wild(rows: pd.DataFrame) -> np.ndarray:
    """Ops inside real models: a test set, never fitted."""
    return true((rows["source"] == "tracelens") | ("model" in rows))


def held_out_problem(rows: pd.DataFrame) -> np.ndarray:
    """One of the 20 % of all shapes that are kept for scoring, on every device and in every source."""
    return held_out(rows)


def held_out_size(rows: pd.DataFrame) -> np.ndarray:
    """One of the 20 % of all (collective, ranks, nodes, bytes) that are kept for scoring."""
    columns = (
        ["" if pd.isna(value) else str(value) for value in rows[name]]
        for name in ("collective", "ranks", "nodes", "bytes")
    )
    keys = ["|".join(key) for key in zip(*columns, strict=True)]
    kept = {key: hashed(key) < HELD_OUT_PERCENT for key in set(keys)}
    return np.array([kept[key] for key in keys], dtype=bool)
