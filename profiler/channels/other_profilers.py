"""A script may use torch.profiler itself; only one can record, and it must be the script's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

IN_USE = "the script uses torch.profiler itself, and only one profiler can record in a process"

_others: set[int] = set()  # autograd profilers of the script that are prepared or recording
_ours = False  # True while we start or stop our own
_give_way: list[Callable[[], None]] = []  # how our recording ends, while it lasts
_installed = False


def install() -> None:
    """Watch the profiler class from now on. Calling it again does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    from torch.autograd.profiler import profile

    for name, starts in (("_prepare_trace", True), ("_start_trace", True), ("__exit__", False)):
        if hasattr(profile, name):
            setattr(profile, name, _watched(getattr(profile, name), starts=starts))


def in_use() -> bool:
    """True while the script's own profiler is prepared or recording."""
    return bool(_others)


@contextmanager
def own() -> Iterator[None]:
    """Around our own starts and stops."""
    global _ours
    before, _ours = _ours, True
    try:
        yield
    finally:
        _ours = before


def begin(give_way: Callable[[], None]) -> None:
    """Our recording began; `give_way` ends it when the script's profiler wants to start."""
    _give_way[:] = [give_way]


def end() -> None:
    """Our recording is over."""
    _give_way.clear()


def _watched(original: Any, *, starts: bool) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _ours:
            if starts:
                _others.add(id(self))
                while _give_way:
                    _give_way.pop()()
            else:
                _others.discard(id(self))
        return original(self, *args, **kwargs)

    return call
