"""Where a training step ends in a script that was not changed: the optimizers tell.

A step ends when the optimizer that steps most rarely has stepped. That is found without looking ahead: a step is over
as soon as every optimizer that takes part has stepped at least once since the last one. With a critic stepped five
times and a generator once, that is the generator's step.

An optimizer that was made but has not stepped yet is waited for; one that does not step while another does so
`PATIENCE` times is given up, and the steps in between are told afterwards from their noted times.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

PATIENCE = 20

OnStep = Callable[[bool, float | None], None]
"""Called with (skipped, end in seconds of the clock; None is now)."""


@dataclass
class _Seen:
    """One optimizer."""

    reference: weakref.ref[Any]
    name: str
    steps: int = 0
    longest_gap: int = 0
    """Most steps of others between two of its own."""
    gap: int = 0
    given_up: bool = False


class StepFinder:
    """Turns optimizer steps into training steps.

    `every` ends a step after that many optimizer steps of any optimizer instead.
    """

    def __init__(
        self, on_step: OnStep, *, every: int | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._on_step = on_step
        self._every = every
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._pending: list[tuple[int, bool, float]] = []
        self.optimizer_steps = 0
        self.training_steps = 0

    def made(self, optimizer: Any) -> None:
        """An optimizer was constructed."""
        if id(optimizer) not in self._seen or self._seen[id(optimizer)].reference() is not optimizer:
            self._seen[id(optimizer)] = _Seen(weakref.ref(optimizer), type(optimizer).__name__)

    def forget(self, optimizer: Any) -> None:
        """An optimizer turned out to be a part of another one."""
        if (seen := self._seen.get(id(optimizer))) is not None:
            seen.given_up = True

    def optimizers(self) -> list[Any]:
        """Those that are alive."""
        return [one for seen in self._seen.values() if (one := seen.reference()) is not None]

    def stepped(self, optimizer: Any, *, skipped: bool = False) -> None:
        """An optimizer stepped, or its gradient scaler skipped the step."""
        self.optimizer_steps += 1
        if self._every is not None:
            self._pending.append((id(optimizer), skipped, 0.0))
            if len(self._pending) >= self._every:
                self._end(any(one[1] for one in self._pending), None)
            return
        self.made(optimizer)
        own = self._seen[id(optimizer)]
        own.steps += 1
        own.longest_gap, own.gap, own.given_up = max(own.longest_gap, own.gap), 0, False
        if len(self._seen) == 1:
            self._end(skipped, None)
            return
        for seen in self._seen.values():
            if seen is not own:
                seen.gap += 1
        self._pending.append((id(optimizer), skipped, self._clock()))
        if self._waiting_for() <= {each[0] for each in self._pending}:
            self._end(any(one[1] for one in self._pending), None)
        elif self._give_up():
            self._replay()

    def finish(self) -> None:
        """The run is over: whoever is still waited for did not take part."""
        if self._pending and self._every is None:
            for seen in self._seen.values():
                seen.given_up |= not seen.steps
            self._replay()

    @property
    def rule(self) -> str:
        """The rule in words, for the manifest."""
        if self._every is not None:
            return f"a step ends after every {self._every} optimizer steps of any optimizer (--step-every)"
        stepping = [seen for seen in self._seen.values() if seen.steps]
        if len(stepping) < 2:
            name = stepping[0].name if stepping else "no optimizer stepped"
            return f"a step ends when the only optimizer ({name}) has stepped"
        told = ", ".join(f"{seen.name} {seen.steps} times" for seen in stepping[:6])
        more = f" and {len(stepping) - 6} more" if len(stepping) > 6 else ""
        return f"a step ends when the optimizer that steps most rarely has stepped ({told}{more})"

    def _waiting_for(self) -> set[int]:
        return {key for key, seen in self._seen.items() if not seen.given_up and seen.reference() is not None}

    def _give_up(self) -> bool:
        """Stop waiting for who has been overtaken too often; whether there was one."""
        found = False
        for seen in self._seen.values():
            patience = max(PATIENCE, 4 * seen.longest_gap) if seen.steps else PATIENCE
            # The gap counts steps of all others; patience is for steps of one of them.
            others = max(1, sum(1 for other in self._seen.values() if other is not seen and other.steps))
            if not seen.given_up and seen.gap > patience * others:
                seen.given_up = found = True
        return found

    def _replay(self) -> None:
        """Find steps again among what was noted, with those who are left."""
        pending, self._pending = self._pending, []
        wanted = self._waiting_for()
        for place, event in enumerate(pending):
            self._pending.append(event)
            if wanted <= {each[0] for each in self._pending}:
                last = place == len(pending) - 1
                self._end(any(one[1] for one in self._pending), None if last else event[2])

    def _end(self, skipped: bool, end_s: float | None) -> None:
        self._pending.clear()
        self.training_steps += 1
        self._on_step(skipped, end_s)


class OptimizerWatch:
    """Patches torch's optimizers and gradient scalers so that they tell a `StepFinder`; `remove` ends it.

    The step is told after torch's own wrapper has returned, so that nothing of the profiler's `Optimizer.step` region
    is open when recording starts or stops there.
    """

    def __init__(self, finder: StepFinder, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.finder = finder
        self.on_first: Callable[[float], None] | None = None
        """Called once, with the time, when the first optimizer is made or steps."""
        self.on_cost: Callable[[float], None] = lambda seconds: None
        self._clock = clock
        self._depth = 0
        self.active = True
        """False passes every call through, as if nothing were patched."""
        self._undo: list[Callable[[], None]] = []
        # Of the scaler.step call under way: its optimizer, whether that was called, whether it found infinities itself.
        self._scaling: Any = None
        self._called = False
        self._found_inf = False

    def patch_optimizers(self, optimizer_class: type) -> None:
        """Watch every optimizer that is made from now on, and the classes that have been used already."""
        original = optimizer_class.__init__  # type: ignore[misc]
        watch = self

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            watch._made(self)

        __init__.__wrapped__ = original  # type: ignore[attr-defined]
        __init__.__doc__ = original.__doc__
        optimizer_class.__init__ = __init__  # type: ignore[misc]
        self._undo.append(lambda: setattr(optimizer_class, "__init__", original))
        for kind in _subclasses(optimizer_class):
            self._wrap(kind)

    def patch_scaler(self, scaler_class: type) -> None:
        """Notice steps that a gradient scaler skips: it does not call the optimizer, or a fused one undoes it."""
        original = scaler_class.step  # type: ignore[attr-defined]
        watch = self

        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch.active or watch._scaling is not None or not self.is_enabled():
                return original(self, optimizer, *args, **kwargs)
            watch._scaling, watch._called, watch._found_inf = optimizer, False, False
            try:
                result = original(self, optimizer, *args, **kwargs)
            finally:
                watch._scaling = None
            entered_s = watch._clock()
            watch._tell(_innermost(optimizer), entered_s, skipped=not watch._called or watch._found_inf)
            return result

        step.__wrapped__ = original  # type: ignore[attr-defined]
        step.__doc__ = original.__doc__
        scaler_class.step = step  # type: ignore[attr-defined]
        self._undo.append(lambda: setattr(scaler_class, "step", original))

    def remove(self) -> None:
        """Tell nothing any more, and put back what was patched."""
        self.active = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _made(self, optimizer: Any) -> None:
        if not self.active:
            return
        self._wrap(type(optimizer))
        self._first()
        self.finder.made(optimizer)

    def _first(self) -> None:
        if self.on_first is not None:
            tell, self.on_first = self.on_first, None
            tell(self._clock())

    def _wrap(self, kind: type) -> None:
        """Put our wrapper around a class's `step`, outside of torch's own."""
        original = kind.__dict__.get("step")
        if original is None or not callable(original) or getattr(original, "_foretrace", None) is self:
            return
        if not hasattr(original, "hooked"):
            return  # torch has not wrapped it yet: nobody has made one
        watch = self

        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch.active:
                return original(self, *args, **kwargs)
            watch._depth += 1
            try:
                result = original(self, *args, **kwargs)
            finally:
                watch._depth -= 1
            watch._stepped(self)
            return result

        step.__wrapped__ = original  # type: ignore[attr-defined]
        step.__doc__ = original.__doc__
        step.__name__ = "step"
        step.hooked = True  # type: ignore[attr-defined]
        step._foretrace = self  # type: ignore[attr-defined]
        kind.step = step  # type: ignore[attr-defined]
        self._undo.append(lambda: setattr(kind, "step", original))

    def _stepped(self, optimizer: Any) -> None:
        entered_s = self._clock()
        if self._depth:
            self.finder.forget(optimizer)  # it steps inside another one's step
            return
        if self._scaling is not None and _innermost(self._scaling) is optimizer:
            self._called, self._found_inf = True, _fused_skip(optimizer)
            return  # the scaler's wrapper tells it
        self._tell(optimizer, entered_s, skipped=False)

    def _tell(self, optimizer: Any, entered_s: float, *, skipped: bool) -> None:
        self._first()
        before = self.finder.training_steps
        self.finder.stepped(optimizer, skipped=skipped)
        if self.finder.training_steps == before:  # else the session counts its own time
            self.on_cost(self._clock() - entered_s)


def _innermost(optimizer: Any) -> Any:
    """The torch optimizer inside of a wrapper such as accelerate's."""
    return getattr(optimizer, "optimizer", optimizer)


def _fused_skip(optimizer: Any) -> bool:
    """Whether a fused optimizer found infinite gradients itself. On a device the answer would have to wait for it."""
    found = getattr(optimizer, "found_inf", None)
    return bool(found is not None and found.device.type == "cpu" and found.item())


def _subclasses(kind: type) -> Sequence[type]:
    found: list[type] = []
    children: list[type] = kind.__subclasses__()
    for each in children:
        found += [each, *_subclasses(each)]
    return found
