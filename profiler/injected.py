"""Inside the script's process: watch for torch's optimizers to be imported, record from the first one on.

Nothing heavy happens before: processes that never make an optimizer (launchers, data loaders, shells) stay as they are.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

RUN_VARIABLE = "FORETRACE_RUN"
"""JSON of what `foretrace profile run` was asked for: output, run_id, channels, schedule, step_every, origin_s."""


def install() -> None:
    """Wait for torch. Called by `sitecustomize`."""
    recorder = _Recorder(json.loads(os.environ[RUN_VARIABLE]))
    sys.meta_path.insert(
        0,
        _AfterImport(
            {
                "torch.optim.optimizer": recorder.optimizers_imported,
                "torch.amp.grad_scaler": recorder.scalers_imported,
            }
        ),
    )


class _AfterImport:
    """A finder that finds nothing itself: it has a module handed over right after its import."""

    def __init__(self, wanted: dict[str, Callable[[ModuleType], None]]) -> None:
        self._wanted = wanted

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._wanted:
            return None
        tell = self._wanted.pop(name)
        spec = importlib.util.find_spec(name)
        if not self._wanted and self in sys.meta_path:
            sys.meta_path.remove(self)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            tell(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Recorder:
    """Makes the session when the first optimizer appears, and closes it when the process ends."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._session: Any = None
        self._watch: Any = None
        self._process = os.getpid()

    def optimizers_imported(self, module: ModuleType) -> None:
        """`torch.optim.optimizer` is there."""
        self._watching().patch_optimizers(module.Optimizer)

    def scalers_imported(self, module: ModuleType) -> None:
        """`torch.amp.grad_scaler` is there."""
        self._watching().patch_scaler(module.GradScaler)

    def _watching(self) -> Any:
        if self._watch is None:
            from .steps import OptimizerWatch, StepFinder

            self._watch = OptimizerWatch(StepFinder(self._on_step, every=self._task["step_every"]))
            self._watch.on_first = self._begin
        return self._watch

    def _begin(self, _: float) -> None:
        """The first optimizer was made: from here on this process is a rank that trains."""
        try:
            self._start()
        except Exception as error:
            self._watch.remove()
            sys.stderr.write(f"foretrace: warning: this process is not recorded: {error}\n")

    def _start(self) -> None:
        from ..datasets.environment import environment
        from ..datasets.store import RunWriter
        from .api import rank_of_process, world_size_of_process
        from .session import Session

        task = self._task
        self._process = os.getpid()
        rank = rank_of_process()
        if not _claim(task["control"], rank, task["output"]):
            raise RuntimeError(f"another process of this run is recorded as rank {rank}; one script at a time, please")
        writer = RunWriter.create(task["output"], kind="profile", rank=rank, run_id=task["run_id"])
        writer.manifest(
            world_size=world_size_of_process(), command=task["command"], environment=environment(),
            schedule=task["schedule"], steps_planned=None, step_rule=self._watch.finder.rule,
        )  # fmt: skip
        self._session = Session(
            writer,
            channels=task["channels"],
            origin_s=task["origin_s"],
            optimizers=self._watch.finder.optimizers,
            **task["schedule"],
        )
        self._watch.on_cost = self._session.add_hook_time
        atexit.register(self._close)

    def _on_step(self, skipped: bool, end_s: float | None) -> None:
        if self._session is not None:
            self._session.step(skipped, end_s=end_s)

    def _close(self) -> None:
        session = self._session
        if session is None or os.getpid() != self._process:
            return
        _hold_interrupts()
        self._watch.finder.finish()
        self._watch.remove()
        ended_by = getattr(sys, "last_type", None)
        status = "complete"
        if ended_by is not None:
            status = "interrupted" if issubclass(ended_by, KeyboardInterrupt) else "failed"
        finder = self._watch.finder
        session.close(status, step_rule=finder.rule, optimizer_steps=finder.optimizer_steps)


def _claim(control: str | None, rank: int, output: str) -> bool:
    """Be the one process that records a rank. Without a control folder (own torchrun) there is only one per rank."""
    if not control or not os.path.isdir(control):  # noqa: PTH112
        return True
    try:
        os.close(os.open(os.path.join(control, f"rank{rank}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # noqa: PTH118
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _hold_interrupts() -> None:
    """A second Ctrl-C must not cut off what the first one made us write."""
    import signal

    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
