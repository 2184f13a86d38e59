"""Measured rows looked up by exact key: device, source, framework, kernel class, op, dtype, direction, dims, shape.

A row that names no source, framework and kernel is answered by the rows of all methods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....datasets.ops.table import DIMS, EXTRAS, Labels, OpTable
from .rows import kernel_word

_MIX = np.uint64(0x9E3779B97F4A7C15)
# Fields of `shape` that do not change what is timed: repeated in dims, or bookkeeping of the source.
_IGNORED = ("batch", "hidden", "tokens", "mbs")


@dataclass(frozen=True, eq=False)
class MeasuredOps:
    """Mean measured time of distinct rows; ask with a table, get NaN where nothing equal was measured."""

    keys: np.ndarray
    """uint64, sorted."""
    log_s: np.ndarray
    """Mean log seconds of the rows with that key."""

    @classmethod
    def of(cls, table: OpTable) -> MeasuredOps:
        """Keep the rows of `table`, which must have times."""
        assert table.time_s is not None, "rows without times"
        log_s = np.tile(np.log(table.time_s), 2)
        keys, at = np.unique(np.concatenate([row_keys(table), row_keys(without_method(table))]), return_inverse=True)
        counts = np.bincount(at, minlength=len(keys))
        return cls(keys, np.bincount(at, log_s, minlength=len(keys)) / counts)

    def lookup(self, table: OpTable) -> np.ndarray:
        """Seconds (rows,), NaN where nothing equal was measured."""
        keys = row_keys(table)
        if not len(self.keys):
            return np.full(len(keys), np.nan)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, np.exp(self.log_s[at]), np.nan)


def without_method(table: OpTable) -> OpTable:
    """The same rows as if nobody had said who measured them with what."""
    nobody = Labels.constant("", len(table))
    return replace(table, source=nobody, framework=nobody, kernel=nobody)


def row_keys(table: OpTable, *, without: str = "") -> np.ndarray:
    """One 64-bit hash a row; the same in every process and whatever else the table holds. `without` leaves one dim or
    field of `shape` out."""
    key = np.zeros(len(table), np.uint64)
    with np.errstate(over="ignore"):
        for labels in (table.device, table.source, table.framework, table.op, table.dtype, table.direction):
            key = _mixed(key, labels.map(_text_hash, np.uint64))
        key = _mixed(key, table.kernel.map(lambda name: _text_hash(kernel_word(name)), np.uint64))
        for name in DIMS:
            if name != without:
                key = _mixed(key, _bits(getattr(table, name)))
        for index, name in enumerate(EXTRAS):
            if name in table.extras and name not in _IGNORED and name != without:
                values = table.extras[name]
                # An absent field leaves the key as it is, so a table without the column gives the same.
                key = np.where(np.isnan(values), key, _mixed(key, _bits(values) + np.uint64(index + 1)))
    return key


def _mixed(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """splitmix64 step."""
    key = (key ^ value) + _MIX
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.where(np.isnan(values), -1.0, values)).view(np.uint64)


def _text_hash(text: str) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
