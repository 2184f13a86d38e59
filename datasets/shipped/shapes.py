"""The `shape` column: what of it is shape and what is measurement, and which of it tells two problems apart."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pandas as pd

from ..schemas import shape_text

HELD_OUT_PERCENT = 20

_GEMMS = {"matmul", "linear", "bmm", "lm_head_loss", "trace.GEMM"}
_SHAPE_KEYS = {
    "attention": ("heads", "kv_heads"),
    "conv2d": ("n", "c", "h", "w", "k_out", "r", "s"),
    "moe_ffn": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"),
    "layer": ("model", "layer", "mbs", "tp"),
    "trace": ("name", "dims"),
}


def split_repeats(shapes: pd.Series) -> pd.DataFrame:
    """Columns shape (JSON, sorted keys), count, low_ms, high_ms (NaN where not stated) of a raw `shape` column.

    Raises `ValueError` with the text that is no JSON object.
    """
    codes, texts = pd.factorize(shapes)
    rows = [_split(text) for text in texts]
    rows.append(("{}", 1, np.nan, np.nan))  # code -1: an empty cell
    parsed = pd.DataFrame(rows, columns=["shape", "count", "low_ms", "high_ms"]).iloc[codes]
    return parsed.set_index(shapes.index)


def _split(text: str) -> tuple[str, int, float, float]:
    shape = json.loads(text)
    if not isinstance(shape, dict):
        raise ValueError(f"expected a JSON object, found {text!r}")
    count, low, high = shape.pop("n_meas", 1), shape.pop("lat_min", np.nan), shape.pop("lat_max", np.nan)
    return shape_text(shape), int(count), float(low), float(high)


def family(op: str) -> str:
    """Ops that are one problem: all products of matrices, attention in every direction, one vector op."""
    if op in _GEMMS:
        return "gemm"
    if op.startswith("attention"):
        return "attention"
    return op


def held_out(rows: pd.DataFrame) -> np.ndarray:
    """True where a row's whole problem is kept for scoring: 20 % of all problems, by a hash that never changes.

    A problem is (family, b, m, n, k and what of the shape tells problems apart); source, device, dtype, direction and
    kernel do not count, so that no scored shape is fitted under another name.
    """
    families = rows["op"].astype(str).map({op: family(op) for op in rows["op"].astype(str).unique()})
    pairs = pd.DataFrame({"family": families.to_numpy(), "shape": rows["shape"].to_numpy()})
    codes = pairs.groupby(["family", "shape"], sort=False).ngroup().to_numpy()
    first = pairs[~pd.Series(codes).duplicated()]
    rest = np.array([_rest(*pair) for pair in first.itertuples(index=False)], dtype=object)[codes]
    problems = pd.DataFrame({"family": pairs["family"], "rest": rest})
    for dim in ("b", "m", "n", "k"):
        problems[dim] = rows[dim].astype("Int64").fillna(-1).astype("int64").to_numpy()
    codes = problems.groupby(list(problems), sort=False).ngroup().to_numpy()
    first = problems[~pd.Series(codes).duplicated()]
    kept = [hashed("|".join(map(str, problem))) < HELD_OUT_PERCENT for problem in first.itertuples(index=False)]
    return np.array(kept, dtype=bool)[codes]


def hashed(problem: str) -> int:
    """A number from 0 to 99 that depends on the text alone."""
    digest = hashlib.blake2b(problem.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 100


def _rest(of: str, text: str) -> str:
    keys = _SHAPE_KEYS.get(of.split(".")[0] if of not in _SHAPE_KEYS else of)
    if keys is None:
        return ""
    shape: dict[str, Any] = json.loads(text)
    return shape_text({key: shape[key] for key in keys if key in shape})
