"""The execution trace: what every operator was called with and what it gave back, by record function id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...datasets.ops import TensorMeta, dtype_name
from ..repair import read_trace


@dataclass(frozen=True)
class Node:
    """One operator call."""

    name: str
    inputs: list[Any]
    """TensorMeta, list of TensorMeta, number, bool, text or None, in the operator's positional order."""
    outputs: list[TensorMeta]


def read_execution_trace(path: Path) -> tuple[dict[int, Node], int]:
    """(node by record function id, how many names were repaired). Raises `InputError` as `read_trace` does.

    Nodes without an id of their own (the process, threads) are left out.
    """
    document, repaired = read_trace(path)
    nodes: dict[int, Node] = {}
    for raw in document.get("nodes") or []:
        identity = next((attr.get("value") for attr in raw.get("attrs") or [] if attr.get("name") == "rf_id"), 0)
        if not isinstance(identity, int) or identity <= 0 or "::" not in raw.get("name", ""):
            continue
        nodes[identity] = Node(raw["name"], _values(raw.get("inputs")), list(_tensors(_values(raw.get("outputs")))))
    return nodes, repaired


def _values(side: dict[str, Any] | None) -> list[Any]:
    """`inputs` or `outputs` of a node, argument by argument."""
    if not side:
        return []
    values, shapes, types = side.get("values", []), side.get("shapes", []), side.get("types", [])
    strides = side.get("strides") or [None] * len(values)
    return [_value(*each) for each in zip(values, shapes, types, strides, strict=False)]


def _value(value: Any, shape: Any, kind: str, strides: Any) -> Any:
    if kind.startswith("Tensor("):
        return _meta(shape, kind, strides)
    if kind.startswith("GenericList["):
        kinds = _split(kind[len("GenericList[") : -1])
        strides = strides if isinstance(strides, list) and len(strides) == len(kinds) else [None] * len(kinds)
        shapes = shape if isinstance(shape, list) and len(shape) == len(kinds) else [[]] * len(kinds)
        return [_value(*each) for each in zip(value, shapes, kinds, strides, strict=False)]
    if kind == "None" or value == "<None>":
        return None
    if kind == "Bool":
        return bool(value)
    return value


def _meta(shape: Sequence[int], kind: str, strides: Sequence[int] | None) -> TensorMeta:
    dims = tuple(shape)
    known = tuple(strides) if strides is not None and len(strides) == len(dims) else None
    return TensorMeta(dims, dtype_name(kind), known)


def _split(kinds: str) -> list[str]:
    """`Tensor(float),GenericList[Int,Int]` at its outermost commas."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(kinds):
        if letter in "[(<":
            depth += 1
        elif letter in "])>":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(kinds[start:index])
            start = index + 1
    return [*parts, kinds[start:]] if kinds else []


def _tensors(values: Sequence[Any]) -> list[TensorMeta]:
    found: list[TensorMeta] = []
    for value in values:
        if isinstance(value, TensorMeta):
            found.append(value)
        elif isinstance(value, list):
            found += _tensors(value)
    return found
