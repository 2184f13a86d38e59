"""Columns of the packed tables. SI units; an empty cell means that the source does not state it."""

from __future__ import annotations

import pyarrow as pa

FIT, SCORE, APART, SUSPECT = "fit", "score", "apart", "suspect"
PARTS = (FIT, SCORE, APART, SUSPECT)
"""fit: may be fitted to. score: held out, whole shapes; fitting never reads it. apart: reported by itself, neither
fitted nor averaged in. suspect: a gate found it wrong; kept for robustness tests."""

_TYPES = {"str": pa.string(), "int": pa.int64(), "double": pa.float64(), "float": pa.float32()}


def _schema(*columns: str) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[kind]) for name, _, kind in (column.partition(":") for column in columns)])


OPS = _schema(
    "source:str", "device:str",     # device is a key of the catalog
    "part:str", "reason:str",       # PARTS; names of the gates that put it there, joined by "+", empty for fit
    "op:str", "dtype:str", "direction:str",
    "split:str",                    # the source's own: train, test, none, suspect
    "framework:str", "kernel:str",
    "shape:str",                    # JSON object, sorted keys: what the dims do not say (heads, window, conv geometry)
    "b:int", "m:int", "n:int", "k:int",
    "flops:double", "bytes:double", # derived from the shape, each tensor touched once
    "time_s:float",                 # the statistic named in `stat`; the median of `count` where repeats were merged
    "spread:float",                 # half the range of the repeats over time_s, to a thousandth; empty for a single one
    "count:int",
    "stat:str",
)  # fmt: skip

COLLECTIVES = _schema(
    "source:str", "device:str", "part:str", "reason:str",
    "interconnect:str", "backend:str", "collective:str", "dtype:str",
    "ranks:int", "nodes:int", "gpus_per_node:int",
    "bytes:int",                    # buffer in the nccl-tests sense; the message for send_recv
    "time_s:float", "spread:float", "count:int",
    "stat:str", "notes:str",
)  # fmt: skip

STEPS = _schema(
    "source:str", "device:str", "part:str", "reason:str",
    "model:str", "mode:str", "dtype:str", "option:str", "heldout:str",
    "seq_len:int", "batch:int", "n_gpus:int",
    "time_s:double", "fwd_s:double", "bwd_s:double",
    "pred_neusight_s:double", "pred_roofline_s:double", "pred_habitat_s:double", "pred_micro_s:double",
)  # fmt: skip

_PREDICTORS = ("neusight", "roofline", "habitat", "micro")
_PARTS_OF_AN_OP = ("fw", "bw", "acc", "bwall", "e2e")

MODEL_OPS = _schema(
    "source:str", "device:str", "part:str", "reason:str",
    "model:str", "mode:str", "name:str", "op_name:str", "input_shapes:str", "output_shape:str",
    "seq_len:int", "batch:int",
    "e2e_s:double", "fwd_s:double", "bwd_s:double", "acc_s:double",
    *(f"{who}_{part}_s:double" for who in _PREDICTORS for part in _PARTS_OF_AN_OP),
)  # fmt: skip

TABLES: dict[str, pa.Schema] = {"ops": OPS, "collectives": COLLECTIVES, "steps": STEPS, "model_ops": MODEL_OPS}

MEASURED = ("time_s", "spread", "count")
"""Columns that repeats of one row differ in."""

PER_ELEMENT = {"flops": "flops_per_volume", "bytes": "bytes_per_face"}
"""Columns of `ops` that lie in the file as a ratio to the dims: few values instead of many, a third of the size."""


def stored(table: str) -> pa.Schema:
    """Columns of a packed file: those of the table, with `PER_ELEMENT` for two of them."""
    names = PER_ELEMENT if table == "ops" else {}
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in TABLES[table]])
