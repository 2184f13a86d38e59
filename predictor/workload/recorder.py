"""Recorder: a torch dispatch mode that writes every operator below autograd into a Program.

It sits above FakeTensorMode, so nothing is computed and nothing allocated, and below DTensor, FSDP2 and
tensor parallel, so that what it sees is what one rank would run: local shapes and the real collectives in their order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...datasets.ops import TensorMeta, canonical, dtype_name
from .program import Collective, Entry, Kind, Program
from .workspace import with_workspace

# c10d operator -> (our kind, which argument tells the full buffer: an output list/tensor or the input)
_C10D = {
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "broadcast_": "broadcast",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
}
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "broadcast": "broadcast",
    "all_to_all_single": "all_to_all",
}
_IGNORED_NAMESPACES = frozenset({"profiler", "prim", "inductor", "debugprims", "_inductor_test"})


class Recorder(TorchDispatchMode):
    """Record one step into `program`.

    `axis_of` gives (mesh axis, ranks) of a process group or its name. `resizable` also follows storages that change
    size while they live, as FSDP2's gathered parameters do; it costs a look at every live storage per operator.
    """

    def __init__(self, *, axis_of: Callable[[Any], tuple[str, int]] | None = None, resizable: bool = False) -> None:
        super().__init__()
        self.program = Program()
        self._axis_of = axis_of or (lambda _group: ("dp", 1))
        self._phase: str | None = None
        self._annotations: list[str] = []
        self._pending: dict[int, int] = {}
        self._storages: dict[int, tuple[int, int]] = {}
        self._known: set[int] = set()
        self._finalizers: list[weakref.finalize] = []
        self._resizable: dict[int, weakref.ref[Any]] | None = {} if resizable else None
        self._serial = 0

    # -- phases -------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """forward, backward, optimizer: from the autograd engine and the optimizers' own annotations."""
        if any(name.startswith("Optimizer.") for name in self._annotations):
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return self._phase or "forward"

    # -- memory -------------------------------------------------------------------------------------------------

    def adopt(self, tensors: Iterable[torch.Tensor]) -> int:
        """Mark storages that live before the step; returns their bytes, each storage once."""
        total = 0
        for tensor in tensors:
            for plain in _plain_tensors(tensor):
                storage = plain.untyped_storage()
                if id(storage) not in self._known:
                    self._track(storage)
                    total += storage.nbytes()
        return total

    def _track(self, storage: torch.UntypedStorage) -> int:
        key = id(storage)
        self._known.add(key)
        self._serial += 1
        serial = self._serial
        self._storages[key] = (serial, storage.nbytes())
        finalizer = weakref.finalize(storage, self._released, key)
        finalizer.atexit = False
        self._finalizers.append(finalizer)
        if self._resizable is not None:
            self._resizable[key] = weakref.ref(storage)
        return serial

    def _released(self, key: int) -> None:
        self._known.discard(key)
        serial, size = self._storages.pop(key, (0, 0))
        if self._resizable is not None:
            self._resizable.pop(key, None)
        if size:
            self.program.entries.append(Entry(Kind.FREE, size, self.phase, category=str(serial)))

    def serial(self, tensor: torch.Tensor) -> list[int]:
        """Serials of the storages behind a tensor (several for a DTensor)."""
        found = (self._storages.get(id(plain.untyped_storage())) for plain in _plain_tensors(tensor))
        return [item[0] for item in found if item]

    def _note_sizes(self) -> None:
        for key, reference in list((self._resizable or {}).items()):
            storage = reference()
            if storage is None or key not in self._storages:
                continue
            serial, before = self._storages[key]
            now = storage.nbytes()
            if now != before:
                self._storages[key] = (serial, now)
                kind = Kind.ALLOC if now > before else Kind.FREE
                self.program.entries.append(Entry(kind, abs(now - before), self.phase, category=str(serial)))

    def _note_outputs(self, outputs: Any) -> None:
        for tensor in _tensors_in(outputs):
            storage = tensor.untyped_storage()
            if id(storage) in self._known or not storage.nbytes():
                continue
            serial = self._track(storage)
            self.program.entries.append(Entry(Kind.ALLOC, storage.nbytes(), self.phase, category=str(serial)))

    def close(self) -> Program:
        """Stop watching storages and hand the program over."""
        for finalizer in self._finalizers:
            finalizer.detach()
        self._finalizers.clear()
        return self.program

    # -- operators ----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__name__ == "DTensor" for kind in types):
            # Let DTensor turn the operator into local ones first; those come back here.
            return NotImplemented
        namespace, _, rest = func._schema.name.partition("::")
        if namespace == "profiler":
            self._annotate(rest, args)
            return func(*args, **kwargs)
        outputs = with_workspace(func._schema.name, args, func(*args, **kwargs))
        if namespace in _IGNORED_NAMESPACES:
            return outputs
        if namespace == "c10d":
            self._c10d(rest, func, args, kwargs)
        elif namespace == "_c10d_functional":
            self._functional(rest, func, args, kwargs, outputs)
        else:
            op = canonical(f"{namespace}.{rest}", _full_arguments(func, args, kwargs), _metas(outputs))
            if op is not None:
                self.program.add_op(op, self.phase)
        if self._resizable is not None:
            self._note_sizes()
        self._note_outputs(outputs)
        return outputs

    def _annotate(self, rest: str, args: Any) -> None:
        if rest.startswith("_record_function_enter"):
            self._annotations.append(str(args[0]))
        elif rest.startswith("_record_function_exit") and self._annotations:
            self._annotations.pop()

    def _c10d(self, rest: str, func: Any, args: Any, kwargs: Any) -> None:
        kind = _C10D.get(rest)
        if kind is None:
            return
        named = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
        group = next((value for name, value in named.items() if name == "process_group"), None)
        axis, ranks = self._axis_of(group)
        tensors = list(_tensors_in(args))
        size = max((t.numel() * t.element_size() for t in tensors), default=0)
        dtype = dtype_name(str(tensors[0].dtype)) if tensors else "fp32"
        # `asyncOp` False or absent means that the caller blocks; FSDP2 on a CPU never overlaps.
        self.program.add_collective(Collective(kind, size, ranks, axis, dtype), self.phase)

    def _functional(self, rest: str, func: Any, args: Any, kwargs: Any, outputs: Any) -> None:
        if rest == "wait_tensor":
            start = self._pending.pop(id(args[0].untyped_storage()), None)
            if start is not None:
                self.program.add_wait(start, self.phase)
            return
        kind = _FUNCTIONAL.get(rest)
        if kind is None:
            return
        named = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
        axis, ranks = self._axis_of(named.get("group_name"))
        tensors = [*_tensors_in(args), *_tensors_in(outputs)]
        size = max(t.numel() * t.element_size() for t in tensors)
        collective = Collective(kind, size, ranks, axis, dtype_name(str(tensors[0].dtype)))
        start = self.program.add_collective(collective, self.phase, wait=False)
        for tensor in _tensors_in(outputs):
            self._pending[id(tensor.untyped_storage())] = start


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    """Shape, dtype and strides of a tensor as plain data."""
    return TensorMeta(
        tuple(int(size) for size in tensor.shape), dtype_name(str(tensor.dtype)), tuple(int(s) for s in tensor.stride())
    )


def _metas(outputs: Any) -> list[TensorMeta]:
    return [meta_of(tensor) for tensor in _tensors_in(outputs)]


def _tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _plain_tensors(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    local = getattr(tensor, "_local_tensor", None)
    yield local if isinstance(local, torch.Tensor) else tensor


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return meta_of(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    return value


def _full_arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Arguments in schema order with defaults filled in, tensors as metas."""
    full: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        if position < len(args):
            full.append(_plain(args[position]))
        elif argument.name in kwargs:
            full.append(_plain(kwargs[argument.name]))
        else:
            full.append(_plain(argument.default_value) if argument.has_default_value() else None)
    return full
