"""Point: one op on concrete shapes, ready to be timed the way training calls it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...datasets.ops import Op, TensorMeta, canonical, dtype_name

# Inputs rotate over sets of this total size and outputs stay alive up to it, as weights and saved activations do
# between two uses in a step: larger than the caches that a core has to itself, so that big operands come from memory.
_RING_BYTES = 48 << 20
_MOST_SETS = 24


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

    def function(self) -> Any:
        """The operator itself. Raises AttributeError when this torch build has none of that name."""
        namespace, name, overload = self.call.split(".")
        if namespace == "fsdp":
            from torch.distributed import fsdp  # noqa: F401  (registers its operators)
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)


class Prepared:
    """A point with its operands in memory: `run()` calls it once, on the next set."""

    def __init__(self, point: Point) -> None:
        self._function = point.function()
        self._keywords = {k: v.make() if isinstance(v, Fresh) else v for k, v in point.keywords}
        first = point.make()
        size = sum(tensor.untyped_storage().nbytes() for tensor in _tensors(first))
        sets = max(1, min(_MOST_SETS, _RING_BYTES // max(size, 1)))
        self._sets = deque([first, *(point.make() for _ in range(sets - 1))])
        outputs = self._function(*first, **self._keywords)
        self.op = _op_of(point, first, self._keywords, self._function, outputs)
        produced = sum(tensor.untyped_storage().nbytes() for tensor in _tensors([outputs]))
        self._kept: deque[Any] = deque(maxlen=max(1, min(_MOST_SETS, _RING_BYTES // max(produced, 1))))

    def run(self) -> None:
        """One call; its output lives on until as much as the ring holds has been produced after it."""
        arguments = self._sets[0]
        self._sets.rotate(-1)
        self._kept.append(self._function(*arguments, **self._keywords))


def _op_of(point: Point, args: list[Any], keywords: dict[str, Any], function: Any, outputs: Any) -> Op:
    full: list[Any] = []
    for position, argument in enumerate(function._schema.arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in keywords:
            value = keywords[argument.name]
        else:
            value = argument.default_value if argument.has_default_value() else None
        full.append(_plain(value))
    namespace, name, _ = point.call.split(".")
    op = canonical(f"{namespace}.{name}", full, [meta(tensor) for tensor in _tensors([outputs])])
    assert op is not None, f"{point.call} is composite; sweep its parts"
    return op


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
