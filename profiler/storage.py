"""StorageTracker: which tensor storages live during one training step, by what they are for.

A process's resident size says little about a step: allocators keep what tensors gave back, and libraries add their own
pages. Here every operator below autograd is seen by a dispatch mode, each distinct storage is counted once from its
first appearance to its end, and the peak of the sum is read off afterwards. Buffers that libraries allocate inside a
kernel (workspaces of oneDNN or MKL, gloo's own copies) are not tensors and not seen.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "other")
METHOD = (
    "live tensor storages of one extra step, counted by a dispatch mode; categories at the moment of the total peak; "
    "kernel workspaces and copies inside gloo are not seen"
)


class StorageTracker(TorchDispatchMode):
    """Use as a context around one step, then read `peak()`.

    `resizable=True` also notices storages that change size while they live, which FSDP2 does with gathered parameters;
    it costs a look at every live storage per operator.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        resizable: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._times_s: list[float] = []  # when each event happened
        self._module = module
        self._optimizer = optimizer
        self._resizable = resizable
        self._ids: dict[int, int] = {}  # address of a live storage -> our id of it
        self._sizes: dict[int, int] = {}  # id -> bytes as last seen
        self._categories: list[str] = []  # by id
        self._events: list[tuple[int, int]] = []  # (id, bytes gained or lost), in order of time
        self._references: dict[int, weakref.ref[Any]] = {}  # id -> storage
        self._hooks: list[Any] = []

    def __enter__(self) -> StorageTracker:
        for parameter in self._module.parameters():
            self._see(parameter, "parameters")
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._mark_gradient))
        for buffer in self._module.buffers():
            self._see(buffer, "parameters")
        for state in self._optimizer.state.values():
            for value in tree_iter(state):
                self._see(value, "optimizer")
        # FSDP2 assigns sharded gradients without accumulating; they are still there when the optimizer steps.
        self._hooks.append(self._optimizer.register_step_pre_hook(self._mark_all_gradients))
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # DTensor first turns into local operators and collectives, which come back here.
        if any(issubclass(kind, torch.Tensor) and _is_wrapper(kind) for kind in types):
            return NotImplemented
        for value in tree_iter((args, kwargs)):
            self._see(value, "other")
        result = func(*args, **(kwargs or {}))
        # Forward and recomputation run with gradients on; backward kernels, FSDP's buffers and the optimizer without.
        category = "activations" if torch.is_grad_enabled() else "other"
        for value in tree_iter(result):
            self._see(value, category)
        if self._resizable:
            self._look_for_resizes()
        return result

    def peak(self) -> dict[str, int]:
        """Bytes by category, and `total`, at the moment when the total was highest."""
        live = best = 0
        best_at = 0
        for index, (_, delta) in enumerate(self._events):
            live += delta
            if live > best:
                best, best_at = live, index + 1
        parts = dict.fromkeys(CATEGORIES, 0)
        for storage_id, delta in self._events[:best_at]:
            parts[self._categories[storage_id]] += delta
        return {"total": best, **parts}

    def timeline(self) -> list[tuple[float, int]]:
        """(seconds of the clock, bytes alive from then on), event by event."""
        live = 0
        points = []
        for time_s, (_, delta) in zip(self._times_s, self._events, strict=False):
            live += delta
            points.append((time_s, live))
        return points

    def _note(self, storage_id: int, delta: int) -> None:
        self._events.append((storage_id, delta))
        self._times_s.append(self._clock())

    def _see(self, value: Any, category: str) -> int | None:
        """Count the storage of a tensor unless it is known; its id, or None for what has no storage of its own."""
        if not isinstance(value, torch.Tensor):
            return None
        value = getattr(value, "_local_tensor", value)
        if value.device.type == "meta" or value.layout != torch.strided:
            return None
        storage = value.untyped_storage()
        address = storage._cdata
        if (known := self._ids.get(address)) is not None:
            return known
        storage_id = len(self._categories)
        size = storage.nbytes()
        self._ids[address] = storage_id
        self._sizes[storage_id] = size
        self._categories.append(category)
        self._note(storage_id, size)
        self._references[storage_id] = weakref.ref(storage, lambda _: self._end(address, storage_id))
        return storage_id

    def _end(self, address: int, storage_id: int) -> None:
        self._note(storage_id, -self._sizes.pop(storage_id))
        self._ids.pop(address, None)
        self._references.pop(storage_id, None)

    def _look_for_resizes(self) -> None:
        for storage_id, reference in list(self._references.items()):
            storage = reference()
            if storage is None or storage_id not in self._sizes:
                continue
            size = storage.nbytes()
            if size != self._sizes[storage_id]:
                self._note(storage_id, size - self._sizes[storage_id])
                self._sizes[storage_id] = size

    def _mark_gradient(self, parameter: nn.Parameter) -> None:
        # DDP may hand out views of its bucket; then the bucket is the gradient.
        if parameter.grad is not None and (storage_id := self._see(parameter.grad, "gradients")) is not None:
            self._categories[storage_id] = "gradients"

    def _mark_all_gradients(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._mark_gradient(parameter)


def _is_wrapper(kind: Any) -> bool:
    """True for tensor subclasses with operators of their own, DTensor above all."""
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
