"""Raw rows as ours: catalog keys, SI units, tidy shapes, repeats merged, and what we know to be misstated put right."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa

from .. import catalog
from ..errors import SchemaError, UsageError
from ..schemas import shape_text
from .columns import MEASURED, TABLES
from .shapes import split_repeats
from .sources import Source

RAW_COLUMNS = {
    "ops": (
        "source", "device", "op", "dtype", "direction", "split", "b", "m", "n", "k", "shape", "flops", "bytes",
        "latency_ms", "stat", "framework", "kernel",
    ),
    "collectives": (
        "source", "device", "interconnect", "backend", "collective", "ranks", "nodes", "gpus_per_node", "dtype",
        "bytes", "time_us", "stat", "notes",
    ),
    "steps": ("device", "model", "mode", "seq_len", "batch", "dtype", "time_ms", "fwd_ms", "bwd_ms"),
    "model_ops": ("device", "model", "mode", "seq_len", "batch", "Name", "OpName", "InputShapes", "OutputShape"),
}  # fmt: skip


class Normal:
    """What became of one source's raw rows."""

    def __init__(self, source: Source, raw_rows: int) -> None:
        self.source = source
        self.raw_rows = raw_rows
        self.rows = pd.DataFrame()
        """In the columns of `TABLES[source.table]`, with `split` "suspect" where the raw table says so; part and reason
        still empty."""
        self.dropped: Counter[str] = Counter()
        """Rows left out, by why."""
        self.merged = 0
        """Rows that went into another row as its repeats."""
        self.corrected: Counter[str] = Counter()
        """Rows that were put right, by what was wrong."""
        self.spellings: dict[str, dict[str, str | None]] = {}
        """Device spelling of the source -> the key it was read as, how sure, and why."""


def normal(raw: pd.DataFrame, source: Source, *, where: str) -> Normal:
    """Raw rows of one source in our columns. Raises `SchemaError` when a column is missing or a shape is no JSON."""
    if missing := [name for name in RAW_COLUMNS[source.table] if name not in raw.columns]:
        raise SchemaError(
            f"{where}: column {missing[0]!r} is missing; a raw {source.table} table has "
            f"{', '.join(RAW_COLUMNS[source.table])}"
        )
    result = Normal(source, len(raw))
    rows = raw.reset_index(drop=True)
    numbers = {field.name for field in TABLES[source.table] if not pa.types.is_string(field.type)}
    for name in rows.columns:
        if name not in numbers and not name.endswith(("_ms", "_us", "_gbps", "_latency")):
            codes, values = pd.factorize(rows[name])
            rows[name] = np.array([*map(str, values), ""], dtype=object)[codes]  # code -1, the last, is an empty cell
    rows["source"] = source.name
    rows = _with_keys(rows, result)
    rows["part"] = rows["reason"] = ""
    rows = {"ops": _ops, "collectives": _collectives, "steps": _steps, "model_ops": _model_ops}[source.table](
        rows, result, where
    )
    result.rows = rows[TABLES[source.table].names].reset_index(drop=True)
    return result


def _with_keys(rows: pd.DataFrame, result: Normal) -> pd.DataFrame:
    """Devices by their catalog key; rows whose device names no part are dropped."""
    keys: dict[str, str | None] = {}
    for spelling in sorted(rows["device"].unique()):
        try:
            match = catalog.find(spelling)
        except UsageError:
            keys[spelling] = None
            continue
        keys[spelling] = match.facts.key
        if spelling != match.facts.key:
            result.spellings[spelling] = {
                "device": match.facts.key, "confidence": match.confidence, "note": match.note
            }  # fmt: skip
    rows["device"] = rows["device"].map(keys)
    return _drop(rows, rows["device"].isna(), "no_such_device", result)


def _drop(rows: pd.DataFrame, where: pd.Series, why: str, result: Normal) -> pd.DataFrame:
    if count := int(where.sum()):
        result.dropped[why] += count
        return rows[~where].reset_index(drop=True)
    return rows


def _ops(rows: pd.DataFrame, result: Normal, where: str) -> pd.DataFrame:
    rows = _drop(rows, ~(rows["latency_ms"] > 0) | ~np.isfinite(rows["latency_ms"]), "no_time", result)
    rows = _drop(rows, rows.duplicated(), "exact_copy", result)
    try:
        parsed = split_repeats(rows["shape"].where(rows["shape"] != "", None))
    except ValueError as error:
        raise SchemaError(f"{where}: column 'shape': {error}") from error
    rows = rows.drop(columns="shape").join(parsed)
    rows["time_s"] = rows.pop("latency_ms") / 1e3
    rows["low_s"], rows["high_s"] = rows.pop("low_ms") / 1e3, rows.pop("high_ms") / 1e3
    for dim in ("b", "m", "n", "k"):
        rows[dim] = rows[dim].astype("Int64")
    if result.source.name == "estimate-train-time":
        full_attention_marked_causal(rows, result.corrected)
    return _merge(rows, "ops", result)


def full_attention_marked_causal(rows: pd.DataFrame, corrected: Counter[str]) -> None:
    """Perlmutter's and Vista's flash attention rows say causal, and run at the rate of full attention.

    0.32 of peak at head dim 128 by causal FLOPs is 0.64 by full ones, the known level of FlashAttention-2. Inferred,
    not stated by the source: the shape says `causal_inferred`. In place; FLOPs double.
    """
    causal = rows["op"].str.startswith("attention") & rows["shape"].str.contains('"causal":true', regex=False)
    texts = {}
    for text in rows.loc[causal, "shape"].unique():
        texts[text] = shape_text({**json.loads(text), "causal": False, "causal_inferred": True})
    rows.loc[causal, "shape"] = rows.loc[causal, "shape"].map(texts)
    rows.loc[causal, "flops"] *= 2
    if causal.any():
        corrected["full_attention_marked_causal"] += int(causal.sum())


def _collectives(rows: pd.DataFrame, result: Normal, where: str) -> pd.DataFrame:
    rows = _drop(rows, ~(rows["time_us"] > 0) | ~np.isfinite(rows["time_us"]), "no_time", result)
    rows = _drop(rows, ~(rows["bytes"] > 0), "no_bytes", result)
    rows = _drop(rows, rows.duplicated(), "exact_copy", result)
    rows["time_s"] = rows.pop("time_us") / 1e6
    rows["low_s"] = rows["high_s"] = np.nan
    rows["count"] = 1
    if "suspect" in rows:
        told = rows["suspect"].astype(str).str.lower() == "true"
        rows.loc[told, "reason"] = "told_by_the_table"
    for name in ("ranks", "nodes", "gpus_per_node", "bytes"):
        rows[name] = rows[name].astype("Float64").round().astype("Int64")
    return _merge(rows, "collectives", result)


def _steps(rows: pd.DataFrame, result: Normal, where: str) -> pd.DataFrame:
    for name in [name for name in rows if name.endswith("_ms")]:
        rows[name.removesuffix("_ms") + "_s"] = rows.pop(name) / 1e3
    return _filled(_drop(rows, ~(rows["time_s"] > 0), "no_time", result), "steps")


def _model_ops(rows: pd.DataFrame, result: Normal, where: str) -> pd.DataFrame:
    names = {"Name": "name", "OpName": "op_name", "InputShapes": "input_shapes", "OutputShape": "output_shape"}
    rows = rows.rename(columns=names)
    for name in [name for name in rows if name.endswith(("_ms", "_latency"))]:
        seconds = name.removeprefix("meas_").removesuffix("_ms").removesuffix("_latency") + "_s"
        rows[seconds] = rows.pop(name) / 1e3
    return _filled(rows, "model_ops")


def _filled(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    """Columns that a source lacks as empty, whole numbers as such."""
    for field in TABLES[table]:
        kind = str(field.type)
        if field.name not in rows:
            rows[field.name] = "" if kind == "string" else np.nan
        if kind == "int64":
            rows[field.name] = rows[field.name].astype("Int64")
    return rows


def _merge(rows: pd.DataFrame, table: str, result: Normal) -> pd.DataFrame:
    """One row for all repeats of it: the median of their times, half their range over it, and how many there were."""
    rows = _filled(rows, table)
    key = [name for name in TABLES[table].names if name not in MEASURED]
    repeated = rows.duplicated(subset=key, keep=False)
    if repeated.any():
        repeats = rows[repeated]
        repeats = repeats.assign(
            low_s=repeats["low_s"].fillna(repeats["time_s"]), high_s=repeats["high_s"].fillna(repeats["time_s"])
        )
        how = {"time_s": "median", "low_s": "min", "high_s": "max", "count": "sum"}
        one = repeats.groupby(key, dropna=False, sort=False, observed=True).agg(how).reset_index()
        result.merged += len(repeats) - len(one)
        rows = pd.concat([rows[~repeated], one], ignore_index=True)
    spread = (rows["high_s"] - rows["low_s"]) / 2 / rows["time_s"]
    rows["spread"] = spread.where(rows["count"] > 1).round(3)
    return rows
