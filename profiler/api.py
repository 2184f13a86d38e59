"""profile: record a training loop from its own code, as a context manager or a decorator."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ..datasets.environment import environment
from ..datasets.errors import RunError
from ..datasets.profile import Profile
from ..datasets.store import RunWriter
from .session import CHANNELS, Session, check_schedule

if TYPE_CHECKING:
    from .steps import OptimizerWatch

P = ParamSpec("P")
R = TypeVar("R")

CALL_RULE = "a step ends where the program calls step()"


class profile:
    """Records the steps inside of a `with` block into the run folder `output`.

        with foretrace.profiler.profile("runs/first") as p:
            for batch in batches:
                train(batch)
                p.step()
        p.profile().step_time_s

    As a decorator it records a call of the function, which needs no change: `@profile("runs/first")`. There, and in a
    block with `find_steps=True`, a step ends as in `foretrace profile run`: when the optimizer that steps most rarely
    has stepped, or after `step_every` optimizer steps.

    `wait`, `warmup`, `active` and `repeat` are torch.profiler's; `channels` are names out of `CHANNELS`. One process
    per rank enters it under torchrun, and `RANK` and `WORLD_SIZE` are read. Raises `UsageError` when the folder is not
    empty (unless `force`) or cannot be written. On Ctrl-C finished steps stay in the folder.
    """

    def __init__(
        self,
        output: str | Path,
        *,
        channels: Iterable[str] = CHANNELS,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        find_steps: bool = False,
        step_every: int | None = None,
        force: bool = False,
        run_id: str | None = None,
    ) -> None:
        check_schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
        self.output = Path(output)
        self._channels = tuple(channels)
        self._schedule: dict[str, Any] = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        self._find_steps = find_steps or step_every is not None
        self._step_every = step_every
        self._force = force
        self._run_id = run_id or run_id_of_torchrun()
        self._session: Session | None = None
        self._watch: OptimizerWatch | None = None

    def step(self, *, skipped: bool = False) -> None:
        """A training step ended; `skipped` when a gradient scaler left the weights as they were."""
        if self._session is None:
            raise RuntimeError("step() was called outside of the with block")
        self._session.step(skipped)

    def profile(self) -> Profile:
        """What has been recorded so far, read from the folder."""
        return Profile.load(self.output)

    def __enter__(self) -> Self:
        rank, world_size = rank_of_process(), world_size_of_process()
        writer = RunWriter.create(self.output, kind="profile", rank=rank, force=self._force, run_id=self._run_id)
        writer.manifest(
            command=list(sys.argv), world_size=world_size, environment=environment(), step_rule=CALL_RULE,
            schedule=self._schedule, steps_planned=None,
        )  # fmt: skip
        watch = self._watch = self._watched()
        self._session = Session(writer, channels=self._channels, optimizers=watch.finder.optimizers, **self._schedule)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        assert session is not None and self._watch is not None
        self._watch.finder.finish() if self._find_steps else None
        self._watch.remove()
        rule = self._watch.finder.rule if self._find_steps else CALL_RULE
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        status = "interrupted" if interrupted else "failed" if kind is not None else "complete"
        if kind is None and not session.steps:
            hint = "call optimizer.step() or give step_every" if self._find_steps else "call p.step() after every step"
            session.close("no steps", step_rule=rule)
            raise RunError(f"{self.output}: 0 steps were recorded; {hint}")
        session.close(status, step_rule=rule)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` recorded whenever it is called."""

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            self._find_steps = True
            with self:
                return function(*args, **kwargs)

        return recorded

    def _watched(self) -> OptimizerWatch:
        """A watch on torch's optimizers: it finds steps, or only knows the optimizers for the memory channel."""
        import torch

        from .steps import OptimizerWatch, StepFinder

        def on_step(skipped: bool, end_s: float | None) -> None:
            if self._session is not None and self._find_steps:
                self._session.step(skipped, end_s=end_s)

        watch = OptimizerWatch(StepFinder(on_step, every=self._step_every))
        watch.patch_optimizers(torch.optim.Optimizer)
        watch.patch_scaler(torch.amp.GradScaler)
        watch.on_cost = lambda seconds: self._session.add_hook_time(seconds) if self._session is not None else None
        return watch


def rank_of_process() -> int:
    """This process's rank: of torch.distributed when it is set up, else of the launcher's variable, else 0."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _number("RANK", 0)


def world_size_of_process() -> int:
    """How many ranks run, from the same places; 1 when nobody says."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return _number("WORLD_SIZE", 1)


def run_id_of_torchrun() -> str | None:
    """A run id that all ranks which one torchrun started agree on; None outside of it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    import hashlib

    parts = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
    if _number("GROUP_WORLD_SIZE", 1) == 1:
        parts.append(str(launcher_start()))  # tells two runs with the same fixed port apart
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def launcher_start() -> tuple[int, float]:
    """(process id, time of start) of the launcher above this rank, the same for all its ranks."""
    import psutil

    parent = psutil.Process(os.getppid())
    return parent.pid, parent.create_time()


def _number(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdigit() else default
