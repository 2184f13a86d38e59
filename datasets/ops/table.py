"""OpTable: op rows of any source as plain columns, in the layout of the published op tables.

Columns: op, device, dtype, direction, source, framework, kernel, split (names); b, m, n, k, flops, bytes (numbers);
shape (a JSON object with whatever else decides the time); latency_ms or time_s, read on request only. Dims mean what
they mean in `Op`; attention keeps its heads in `shape`. A number that a row does not have is NaN here, because columns
are arrays.

`shape` also holds what was measured (`lat_min`, `n_meas`): only the fields of `ShapeFields` are ever read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

DIMS = ("b", "m", "n", "k")
NAMES = ("op", "device", "dtype", "direction", "source", "framework", "kernel", "split")
LARGEST_DIM = 2.0**40
"""No tensor dim of a real op comes near; beyond it FLOPs of a GEMM leave what a float64 holds exactly."""

Scalar = float | bool | str | None


class ShapeFields(msgspec.Struct, frozen=True, gc=False):
    """What `shape` may hold that decides the time of an op; other keys are skipped."""

    heads: Scalar = None
    kv_heads: Scalar = None
    causal: Scalar = None
    window: Scalar = None
    n: Scalar = None
    c: Scalar = None
    h: Scalar = None
    w: Scalar = None
    k_out: Scalar = None
    r: Scalar = None
    s: Scalar = None
    stride: Scalar = None
    stride_w: Scalar = None
    stride_h: Scalar = None
    pad: Scalar = None
    pad_w: Scalar = None
    pad_h: Scalar = None
    hidden: Scalar = None
    batch: Scalar = None
    timesteps: Scalar = None
    tokens: Scalar = None
    inter: Scalar = None
    topk: Scalar = None
    experts: Scalar = None
    tp: Scalar = None
    ep: Scalar = None
    dist: Scalar = None
    transA: Scalar = None
    transB: Scalar = None
    mbs: Scalar = None
    mp: Scalar = None
    dim: Scalar = None
    encoders: Scalar = None
    input_mb: Scalar = None
    output_mb: Scalar = None
    weight_mb: Scalar = None
    act_mb: Scalar = None
    algo: Scalar = None


EXTRAS = ShapeFields.__struct_fields__
_WORDS = {"T": 1.0, "N": 0.0, "balanced": 0.0}
"""Words that stand for a number; a power-law expert load counts its exponent (`power_law_1.2`)."""

_decoder = msgspec.json.Decoder(ShapeFields)
_NOTHING = ShapeFields()


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of names: `names[codes[row]]`; an absent name is "" ."""

    codes: np.ndarray
    """int32 (rows,)."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[Any]) -> Labels:
        """Encode any sequence of texts; None and NaN become ""."""
        import pandas as pd

        codes, uniques = pd.factorize(pd.Series(values, dtype=object) if isinstance(values, list) else values)
        names = [str(name) for name in uniques]
        if (codes < 0).any():
            if "" not in names:
                names.append("")
            codes = np.where(codes < 0, names.index(""), codes)
        return cls(codes.astype(np.int32), tuple(names))

    @classmethod
    def constant(cls, name: str, rows: int) -> Labels:
        """The same name in every row."""
        return cls(np.zeros(rows, np.int32), (name,))

    def take(self, rows: np.ndarray) -> Labels:
        """Some rows; names that no row uses are kept."""
        return Labels(self.codes[rows], self.names)

    def map(self, function: Any, dtype: Any = np.float64) -> np.ndarray:
        """`function(name)` of every row, called once a name."""
        return (
            np.array([function(name) for name in self.names], dtype)[self.codes] if self.names else np.empty(0, dtype)
        )

    def texts(self) -> np.ndarray:
        """Names by row, an object array."""
        return np.array(self.names, object)[self.codes]

    def are(self, name: str) -> np.ndarray:
        """Mask of the rows that carry exactly this name."""
        return self.map(lambda own: own == name, bool)


@dataclass(frozen=True, eq=False)
class OpTable:
    """Columns of equal length. Numbers are float64 with NaN for "not given"."""

    op: Labels
    device: Labels
    dtype: Labels
    direction: Labels
    source: Labels
    framework: Labels
    kernel: Labels
    split: Labels
    b: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    flops: np.ndarray
    bytes: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    """Fields of `shape` that some row has, by name."""
    time_s: np.ndarray | None = None
    """Measured seconds; None unless the reader was asked for them."""

    def __len__(self) -> int:
        return len(self.b)

    def extra(self, name: str, default: float = np.nan) -> np.ndarray:
        """A field of `shape`, `default` where a row has none."""
        assert name in EXTRAS, name
        values = self.extras.get(name)
        if values is None:
            return np.full(len(self), default)
        return np.where(np.isnan(values), default, values)

    def take(self, rows: np.ndarray) -> OpTable:
        """Rows by mask or index, in that order."""
        changed: dict[str, Any] = {name: getattr(self, name).take(rows) for name in NAMES}
        changed |= {name: getattr(self, name)[rows] for name in (*DIMS, "flops", "bytes")}
        changed["extras"] = {name: values[rows] for name, values in self.extras.items()}
        changed["time_s"] = None if self.time_s is None else self.time_s[rows]
        return replace(self, **changed)

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, *, where: str, times: bool = False, device: str | None = None) -> OpTable:
        """Read a table. `times` reads `latency_ms` (or `time_s`) too; `device` stands for the column of that name.

        Raises `SchemaError` naming `where`, row (from 0) and column when a required column is absent or a dim is 0,
        negative, fractional or beyond `LARGEST_DIM`.
        """
        rows = len(frame)
        clock, unit_s = ("time_s", 1.0) if "time_s" in frame.columns else ("latency_ms", 1e-3)
        required = ["op", "dtype", *([clock] if times else []), *([] if device else ["device"])]
        if missing := [name for name in required if name not in frame.columns]:
            raise SchemaError(
                f"{where}: no column {', '.join(missing)}; a table of ops has op, device, dtype, direction, b, m, n, "
                "k, shape, flops, bytes"
            )
        names = {name: Labels.of(frame[name]) if name in frame.columns else Labels.constant("", rows) for name in NAMES}
        if device is not None:
            names["device"] = Labels.constant(device, rows)
        numbers = {name: _numbers(frame, name, where) for name in (*DIMS, "flops", "bytes")}
        time_s = _numbers(frame, clock, where) * unit_s if times else None
        columns: dict[str, Any] = {**names, **numbers}
        return cls(**columns, extras=_extras(frame, where), time_s=time_s)


def _numbers(frame: pd.DataFrame, name: str, where: str) -> np.ndarray:
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    column = frame[name]
    try:
        values = column.to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        row = next(row for row, value in enumerate(column) if not _is_number(value))
        raise SchemaError(f"{where}: row {row}, column {name}: expected a number, found {column.iloc[row]!r}") from None
    bad = np.isinf(values) | (values < 0)
    wanted = "a number of at least 0"
    if name in DIMS:
        bad |= (values == 0) | (values > LARGEST_DIM) | (values != np.floor(values)) & ~np.isnan(values)
        wanted = f"a whole number from 1 to 2^{int(np.log2(LARGEST_DIM))}"
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SchemaError(
            f"{where}: row {row}, column {name}: expected {wanted}, or nothing; found {values[row]:.17g} "
            f"({int(bad.sum())} such rows)"
        )
    return values


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value is None
    return True


def _extras(frame: pd.DataFrame, where: str) -> dict[str, np.ndarray]:
    """Numbers of `shape` by field; each distinct text is parsed once."""
    if "shape" not in frame.columns:
        return {}
    shapes = Labels.of(frame["shape"])
    seen: dict[ShapeFields, int] = {}
    codes = np.empty(len(shapes.names), np.int64)
    for code, text in enumerate(shapes.names):
        try:
            fields = _decoder.decode(text) if text else _NOTHING
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            row = int(np.flatnonzero(shapes.codes == code)[0])
            raise SchemaError(f"{where}: row {row}, column shape: is no JSON object of numbers: {error}") from None
        codes[code] = seen.setdefault(fields, len(seen))
    at = codes[shapes.codes] if len(codes) else codes
    found = {}
    for name in EXTRAS:
        values = [getattr(fields, name) for fields in seen]
        if any(value is not None for value in values):
            found[name] = np.array([_number_of(value) for value in values])[at]
    return found


def _number_of(value: Scalar) -> float:
    if value is None:
        return np.nan
    if isinstance(value, str):
        if value in _WORDS:
            return _WORDS[value]
        try:
            return float(value.rpartition("_")[2])
        except ValueError:
            return np.nan
    number = float(value)
    return number if np.isfinite(number) else np.nan
