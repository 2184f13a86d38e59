"""Which `Op` an event of the profiler is: by the execution trace where it ran, by the same signature elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...datasets.ops import Op, TensorMeta, canonical, dtype_name, is_known, short_name
from ...datasets.ops.canonical import COMPOSITE
from .events import FUNCTION_SCOPE, RawEvent
from .execution_trace import Node

IGNORED_NAMESPACES = frozenset({"profiler", "prim", "inductor", "debugprims", "c10d", "_c10d_functional", "autograd"})
"""Bookkeeping, and collectives, which have a channel of their own."""

Key = tuple[Any, ...]


def is_operator(event: RawEvent) -> bool:
    """True for an operator that could be a row: not an annotation, an autograd node, a collective or a device event."""
    if event.scope != FUNCTION_SCOPE or event.device != "cpu":
        return False
    namespace, colons, rest = event.name.partition("::")
    return bool(colons) and namespace.isidentifier() and ":" not in rest and namespace not in IGNORED_NAMESPACES


def is_composite(name: str) -> bool:
    """True when the parts of an operator are the rows, not itself."""
    return short_name(name) in COMPOSITE


class Identities:
    """Learns from the described step, then names the events of every step."""

    def __init__(self) -> None:
        self._by_signature: dict[Key, Op] = {}
        self._guesses: dict[Key, Op | None] = {}
        self._by_shapes: dict[Key, Op | None] = {}  # None where calls of the same shapes are different ops
        self.joined = 0
        """Events whose op the execution trace told, by id or by signature."""
        self.described_joined = 0
        self.described = 0
        """Of the described step alone: how many were joined by record function id, of how many."""
        self.guessed = 0
        """Events whose op had to be told from Kineto's inputs alone, without outputs."""

    def learn(self, event: RawEvent, node: Node | None) -> None:
        """`event` of the described step, with what the execution trace says of it."""
        self.described += 1
        if node is None or node.name != event.name:
            return
        self.described_joined += 1
        op = canonical(event.name, node.inputs, node.outputs)
        if op is None:
            return
        exact, shapes = _keys(event)
        self._by_signature[exact] = op
        known = self._by_shapes.setdefault(shapes, op)
        if known != op:
            self._by_shapes[shapes] = None

    def of(self, event: RawEvent) -> Op | None:
        """The op of an event, counted; None only for a composite one."""
        exact, shapes = _keys(event)
        op = self._by_signature.get(exact)
        if op is None:
            op = self._by_shapes.get(shapes)  # a learning rate or step count changed, the shapes did not
        if op is not None:
            self.joined += 1
            return op
        if exact not in self._guesses:
            self._guesses[exact] = _from_inputs(event)
        self.guessed += self._guesses[exact] is not None
        return self._guesses[exact]


def _keys(event: RawEvent) -> tuple[Key, Key]:
    shapes = (event.name, repr(event.shapes), tuple(event.dtypes), repr(event.strides))
    return (*shapes, repr(event.concrete)), shapes


def _from_inputs(event: RawEvent) -> Op | None:
    """Kineto knows inputs only; an output that looks like the largest input is the best guess there is."""
    inputs = list(_inputs(event))
    op = canonical(event.name, inputs, [])
    if op is None or not is_known(event.name) or not (op.op.startswith("unknown.") or not op.bytes_written):
        return op
    tensors = [value for value in inputs if isinstance(value, TensorMeta)]
    largest = max(tensors, key=lambda meta: meta.numel, default=None)
    return canonical(event.name, inputs, [largest] if largest is not None else [])


def _inputs(event: RawEvent) -> Sequence[Any]:
    values: list[Any] = []
    for position, kind in enumerate(event.dtypes):
        shape = event.shapes[position] if position < len(event.shapes) else []
        strides = event.strides[position] if position < len(event.strides) else None
        concrete = event.concrete[position] if position < len(event.concrete) else None
        if kind == "TensorList":
            values.append([TensorMeta(tuple(one), "fp32") for one in shape])
        elif kind in ("Scalar", "ScalarList", ""):
            values.append(concrete)
        else:
            dims = tuple(shape)
            known = tuple(strides) if strides is not None and len(strides) == len(dims) else None
            values.append(TensorMeta(dims, dtype_name(kind), known))
    return values
