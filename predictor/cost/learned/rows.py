"""Rows made ready for a family: facts of their devices, shape features, base, context flags, groups.

A group is (device, source, framework): rows timed by one method, with an offset of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ....datasets.catalog import DeviceFacts, device
from ....datasets.ops.table import Labels, OpTable
from ..analytic.accelerator.facts import facts_row
from .families import base_prices, device_features


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one family as the models read them."""

    table: OpTable
    shape: np.ndarray
    """float32 (rows, shape features)."""
    device: np.ndarray
    """float32 (rows, device features)."""
    base_s: np.ndarray
    facts: np.ndarray
    """float64 (distinct devices and dtypes, facts), see `at`."""
    at: np.ndarray

    @classmethod
    def of(cls, family: int, table: OpTable, devices: dict[str, DeviceFacts] | None = None) -> Rows:
        """Features and base of `table`, whose rows must all belong to `family`."""
        facts, at = device_facts(table, devices)
        shape, base_s = base_prices(family, table, facts, at)
        return cls(table, shape, device_features(facts, at), base_s, facts, at)

    def __len__(self) -> int:
        return len(self.base_s)

    @cached_property
    def context(self) -> dict[str, Labels]:
        """See `context`."""
        return context(self.table)

    def flags(self, names: Sequence[str]) -> np.ndarray:
        """Float32 (rows, len(names)): 1 where a row has the context `kind=value`."""
        columns = np.zeros((len(self), len(names)), np.float32)
        contexts = self.context
        for index, name in enumerate(names):
            kind, _, value = name.partition("=")
            columns[:, index] = contexts[kind].are(value)
        return columns


def device_facts(table: OpTable, devices: dict[str, DeviceFacts] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Facts of each distinct (device, dtype), and which of them each row has. Raises `UsageError` for an unknown
    device."""
    pair = table.device.codes.astype(np.int64) * len(table.dtype.names) + table.dtype.codes
    distinct, at = np.unique(pair, return_inverse=True)
    rows = []
    for code in distinct:
        name, dtype = (
            table.device.names[code // len(table.dtype.names)],
            table.dtype.names[code % len(table.dtype.names)],
        )
        rows.append(facts_row((devices or {}).get(name) or device(name), dtype))
    return np.array(rows), at.astype(np.int32)


def framework_word(text: str) -> str:
    """What carries over from device to device of a framework and its version: the name before the version."""
    return text.replace(" ", "/").partition("/")[0].casefold()


def kernel_word(text: str) -> str:
    """Kernels that are a case of their own wherever they run."""
    return "triton" if "triton" in text else ""


def dtype_word(text: str) -> str:
    """fp16 and bf16 run on the same units at the same rate."""
    return "half" if text in ("fp16", "bf16", "fp16_mixed") else text


@lru_cache(maxsize=256)
def _renaming(names: tuple[str, ...], word: Callable[[str], str]) -> tuple[np.ndarray, tuple[str, ...]]:
    renamed = [word(name) for name in names]
    distinct = sorted(set(renamed))
    return np.array([distinct.index(name) for name in renamed], np.int32), tuple(distinct)


def _renamed(labels: Labels, word: Callable[[str], str]) -> Labels:
    code, names = _renaming(labels.names, word)
    return Labels(code[labels.codes], names)


def context(table: OpTable) -> dict[str, Labels]:
    """Kind of flag -> its value by row."""
    return {
        "op": table.op,
        "dtype": _renamed(table.dtype, dtype_word),
        "direction": table.direction,
        "source": table.source,
        "framework": _renamed(table.framework, framework_word),
        "kernel": _renamed(table.kernel, kernel_word),
    }


def flag_names(table: OpTable, *, least_rows: int = 20) -> tuple[str, ...]:
    """Flags worth a column: every value of a context kind that not all rows share and that enough rows have."""
    names = []
    for kind, labels in context(table).items():
        counts = np.bincount(labels.codes, minlength=len(labels.names))
        present = [(name, count) for name, count in zip(labels.names, counts, strict=True) if count and name]
        if len(present) > 1 or (present and present[0][1] < len(table)):
            names += [f"{kind}={name}" for name, count in sorted(present) if count >= least_rows]
    return tuple(names)


def groups_of(table: OpTable) -> Labels:
    """(device, source, framework with its version) of every row, as one label."""
    parts = (table.device, table.source, table.framework)
    code = np.zeros(len(table), np.int64)
    for labels in parts:
        code = code * max(1, len(labels.names)) + labels.codes
    distinct, at = np.unique(code, return_inverse=True)
    names = []
    for value in distinct:
        texts = []
        for labels in reversed(parts):
            value, index = divmod(value, max(1, len(labels.names)))
            texts.append(labels.names[index])
        names.append("|".join(reversed(texts)))
    return Labels(at.astype(np.int32), tuple(names))
