"""Point: one op on concrete shapes, ready to be timed the way training calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...datasets.ops import Op, TensorMeta, canonical, dtype_name
from .heap import LARGEST_MMAP_THRESHOLD_BYTES


@dataclass(frozen=True)
class Fresh:
    """A keyword argument that is a tensor: made once per prepared point, not shared between points."""

    make: Callable[[], Any]


@dataclass(frozen=True)
class Point:
    """`call` is an aten overload (`aten.addmm.default`); `make` builds one fresh set of positional arguments."""

    call: str
    make: Callable[[], list[Any]]
    keywords: tuple[tuple[str, Any], ...] = ()
    recent: str = "first"
    """Which operands the operator before it in a step has just written or read: `first` (of at least two dims, or the
    only one: the activation or the gradient that arrives), `all`, or `none` (weights and
    saved values)."""

    def function(self) -> Any:
        """The operator itself. Raises AttributeError when this torch build has none of that name."""
        namespace, name, overload = self.call.split(".")
        if namespace == "fsdp":
            from torch.distributed import fsdp  # noqa: F401  (registers its operators)
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)


class Prepared:
    """A point with its operands in memory: `run()` calls it once."""

    def __init__(self, point: Point) -> None:
        self._function = point.function()
        self._keywords = {k: v.make() if isinstance(v, Fresh) else v for k, v in point.keywords}
        self._arguments = point.make()
        operands = _tensors(self._arguments)
        if point.recent == "first":
            operands = [next((tensor for tensor in operands if tensor.dim() >= 2), operands[0])] if operands else []
        elif point.recent == "none":
            operands = []
        self._recent = [_stored(tensor) for tensor in operands if tensor.is_floating_point()]
        self._kept = self._function(*self._arguments, **self._keywords)
        op = op_of(self._function, self._arguments, self._keywords, self._kept)
        assert op is not None, f"{point.call} is composite; sweep its parts"
        self.op = op
        sizes = [tensor.untyped_storage().nbytes() for tensor in _tensors([self._kept])]
        self._maps = max(sizes, default=0) >= LARGEST_MMAP_THRESHOLD_BYTES

    def touch(self) -> None:
        """Leave memory as the operators before this one would: what they read or wrote in the caches, and for an
        output that is mapped afresh pages that were given back just now.

        Log-softmax of 32 MiB on one machine: 39 ms without that call, 9 ms with it, 20 ms inside a profiled step. So it
        is nearer and now errs the other way; why fresh pages cost so differently was not established."""
        if self._maps:
            self.run()
        for tensor in self._recent:
            torch.sum(tensor)

    def run(self) -> None:
        """One call. Its output lives until the next one has been made, as an activation outlives its operator."""
        self._kept = self._function(*self._arguments, **self._keywords)


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """All stored elements in the order of memory, whatever view of them `tensor` is."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.float32).set_(storage, 0, (storage.nbytes() // 4,))  # type: ignore[call-overload]


def operand_bytes(point: Point) -> int:
    """Bytes of all operands of a point, without making them; 1 GiB when they cannot be made without computing."""
    try:
        with torch.device("meta"):
            found = _tensors(point.make())
    except (RuntimeError, NotImplementedError):
        return 1 << 30
    return sum(tensor.untyped_storage().nbytes() for tensor in found)


def op_of(function: Any, args: Any, keywords: dict[str, Any], outputs: Any) -> Op | None:
    """The `Op` of one call of an operator overload; None for a composite one and for what is no tensor work."""
    namespace, _, name = function._schema.name.partition("::")
    if namespace not in ("aten", "fsdp"):
        return None
    full: list[Any] = []
    for position, argument in enumerate(function._schema.arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in keywords:
            value = keywords[argument.name]
        else:
            value = argument.default_value if argument.has_default_value() else None
        full.append(_plain(value))
    return canonical(f"{namespace}.{name}", full, [meta(tensor) for tensor in _tensors([outputs])])


def meta(tensor: torch.Tensor) -> TensorMeta:
    """Shape, dtype and strides of a tensor as plain data."""
    return TensorMeta(tuple(tensor.shape), dtype_name(str(tensor.dtype)), tuple(tensor.stride()))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return meta(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, torch.dtype | torch.device) else value


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_tensors(value))
    return found
