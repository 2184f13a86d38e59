"""run_script: profile an unchanged training script by starting its command with a watcher in every Python below it.

The command runs as it is, as a child of this process with its own stdin, stdout and stderr. What is added is one folder
on PYTHONPATH (see `inject/sitecustomize.py`) and one variable. So it does not matter whether the command is python,
torchrun or a shell script, nor who starts the ranks.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..datasets.environment import environment
from ..datasets.errors import ForetraceError, UsageError
from ..datasets.profile import Profile
from ..datasets.store import RunWriter, new_run_id
from .api import launcher_start, rank_of_process, run_id_of_torchrun, world_size_of_process
from .injected import RUN_VARIABLE
from .session import CHANNELS, check_schedule

NOT_FOUND = 127
INTERRUPTED = 130
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


class CommandNotFoundError(UsageError):
    """The command to profile does not exist; the shell's exit code for that."""

    exit_code = NOT_FOUND


@dataclass(frozen=True)
class RunOptions:
    """What to record of a script, and where."""

    output: Path | None = None
    """Run folder; None is `runs/<script>-<time>`."""
    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    step_every: int | None = None
    """End a step after that many optimizer steps; None finds the rule."""
    channels: tuple[str, ...] = CHANNELS
    force: bool = False


@dataclass
class ScriptRun:
    """How it went."""

    path: Path
    code: int
    """The exit code for the caller: the script's own, 128 + signal, or 1 when no step was recorded."""
    script_code: int
    """As the operating system gave it: negative is a signal's number."""
    profile: Profile | None
    """None when nothing of it can be read."""
    messages: list[str] = field(default_factory=list)
    """What to tell the user, besides the profile."""


def run_script(command: Sequence[str], options: RunOptions | None = None) -> ScriptRun:
    """Run and record `command`.

    Raises `UsageError` (exit 2) before the script starts when the folder or the script makes no sense, and
    `CommandNotFoundError` (127) when there is no such command.
    """
    options = options or RunOptions()
    check_schedule(wait=options.wait, warmup=options.warmup, active=options.active, repeat=options.repeat)
    arguments = complete_command(command)
    rank = rank_of_process() if "RANK" in os.environ else 0
    launched = run_id_of_torchrun()
    run_id = launched or new_run_id()
    output = (options.output or default_output(arguments)).absolute()
    # A rank below torchrun joins the folder that its fellows made; the run id tells whose it is.
    writer = RunWriter.create(output, kind="profile", rank=rank, force=options.force, run_id=run_id)
    writer.manifest(
        command=arguments, world_size=world_size_of_process(), environment=environment(), schedule=_schedule(options),
        steps_planned=None,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="foretrace-run-", ignore_cleanup_errors=True) as control:
        task = {
            "output": str(output), "run_id": run_id, "channels": list(options.channels),
            "schedule": _schedule(options), "step_every": options.step_every, "command": arguments,
            "origin_s": _origin_s(), "control": None if launched else control,
        }  # fmt: skip
        script_code, interrupted = _run_child(arguments, task)
    return _finish(writer, script_code, interrupted)


def complete_command(command: Sequence[str]) -> list[str]:
    """The command to start: `train.py ...` and `-m module ...` get this Python in front.

    Raises `CommandNotFoundError`, and `UsageError` for a script file that does not exist.
    """
    arguments = list(command)
    if not arguments:
        raise UsageError("profile run: no command was given; write it after --, for example: -- python train.py")
    first = arguments[0]
    if first == "-m" or (first.endswith(".py") and not os.access(first, os.X_OK)):
        arguments.insert(0, sys.executable)
    if shutil.which(arguments[0]) is None:
        raise CommandNotFoundError(f"profile run: {arguments[0]}: command not found")
    script = script_of(arguments)
    if script is not None and not Path(script).exists():
        raise UsageError(f"profile run: {script}: no such script; check the path (it is taken from {Path.cwd()})")
    return arguments


def script_of(arguments: Sequence[str]) -> str | None:
    """The script file in a command of python or torchrun; None when there is none or it cannot be told."""
    name = Path(arguments[0]).name
    if name.startswith("python"):
        rest = iter(arguments[1:])
        for argument in rest:
            if argument in ("-m", "-c", "-"):
                return None
            if argument in ("-W", "-X", "--check-hash-based-pycs"):
                next(rest, None)
            elif not argument.startswith("-"):
                return argument
        return None
    return next((argument for argument in arguments[1:] if argument.endswith(".py")), None)


def default_output(arguments: Sequence[str]) -> Path:
    """`runs/train-20250131-142501`; the ranks of one torchrun agree on it."""
    script = script_of(arguments)
    module = arguments[arguments.index("-m") + 1 :][:1] if "-m" in arguments else []
    stem = Path(script).stem if script else module[0] if module else Path(arguments[0]).name
    moment = launcher_start()[1] if run_id_of_torchrun() else time.time()
    return Path("runs") / f"{stem}-{datetime.fromtimestamp(moment):%Y%m%d-%H%M%S}"


def _schedule(options: RunOptions) -> dict[str, int]:
    return {name: getattr(options, name) for name in ("wait", "warmup", "active", "repeat")}


def _origin_s() -> float:
    """0 of the run's clock; below torchrun the launcher's start, so that all ranks of a host share it."""
    if run_id_of_torchrun() is None:
        return time.perf_counter()
    return time.perf_counter() - (time.time() - launcher_start()[1])


def _run_child(arguments: list[str], task: dict[str, Any]) -> tuple[int, bool]:
    """(exit code, whether somebody pressed Ctrl-C); signals reach the script once, whoever they were sent to."""
    variables = dict(os.environ)
    inject = str(Path(__file__).parent / "inject")
    variables["PYTHONPATH"] = os.pathsep.join([inject, *filter(None, [variables.get("PYTHONPATH")])])
    variables[RUN_VARIABLE] = json.dumps(task)
    sys.stdout.flush()
    sys.stderr.flush()
    passed_on = {signal.SIGTERM, signal.SIGHUP} if hasattr(signal, "SIGHUP") else {signal.SIGTERM}
    waits = hasattr(signal, "sigwaitinfo")
    watched = passed_on | {signal.SIGINT, *([signal.SIGCHLD] if waits else [])}
    if not waits:
        return _run_simply(arguments, variables)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    interrupted = False
    try:
        child = _start(arguments, variables, before)
        while True:
            got = signal.sigwaitinfo(watched)
            if got.si_signo == signal.SIGCHLD:
                if child.poll() is not None:
                    return child.returncode, interrupted
                continue
            interrupted |= got.si_signo == signal.SIGINT
            # Ctrl-C in a terminal reaches the whole group (si_code > 0: from the kernel); kill reaches only us.
            if got.si_signo != signal.SIGINT or got.si_code <= 0:
                with suppress(ProcessLookupError):
                    child.send_signal(got.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(arguments: list[str], variables: dict[str, str], mask: Any) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if sys.platform == "linux":
            # The script ends with us, kill -9 included.
            ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DEATH, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    try:
        return subprocess.Popen(arguments, env=variables, preexec_fn=prepare)
    except FileNotFoundError as error:
        raise CommandNotFoundError(f"profile run: {arguments[0]}: command not found") from error
    except OSError as error:
        raise UsageError(f"profile run: {arguments[0]}: cannot be started: {error.strerror}") from error


def _run_simply(arguments: list[str], variables: dict[str, str]) -> tuple[int, bool]:
    """For systems without sigwaitinfo: Ctrl-C reaches the group by itself."""
    child = subprocess.Popen(arguments, env=variables)
    interrupted = False
    while True:
        try:
            return child.wait(), interrupted
        except KeyboardInterrupt:
            interrupted = True


def _finish(writer: RunWriter, script_code: int, interrupted: bool) -> ScriptRun:
    """Read what there is, note the exit code, decide ours."""
    code = 128 - script_code if script_code < 0 else script_code
    messages: list[str] = []
    try:
        profile: Profile | None = Profile.load(writer.path)
    except ForetraceError as error:
        profile = None
        messages.append(str(error))
    steps = 0 if profile is None else len(profile.steps)
    if interrupted and script_code:
        code = INTERRUPTED
        messages.append(f"interrupted; {_count(steps)} recorded before")
    elif script_code < 0:
        messages.append(f"the script was killed by {_signal_name(-script_code)}; ending with its code {code}")
    elif script_code:
        messages.append(f"the script exited with {script_code}; ending with the same code")
    fields: dict[str, Any] = {"script_exit_code": script_code}
    recorded = profile is not None and profile.manifest.get("steps_recorded") is not None
    if not steps:
        fields["status"] = "interrupted" if interrupted else "failed" if script_code else "no steps"
        if not script_code:
            code = 1
            messages.append(
                "the script ended without a training step: no torch optimizer stepped in it; call optimizer.step(), or "
                "record from code with foretrace.profiler.profile and p.step()"
                if not profile or not _optimizer_steps(profile)
                else f"the script ended before a step was full ({_optimizer_steps(profile)} optimizer steps); "
                "use a smaller --step-every"
            )
    elif not script_code and (not recorded or (profile is not None and profile.status == "incomplete")):
        code = 1
        messages.append(f"the script ended well, but its recording is incomplete; {_count(steps)} can be read")
    elif interrupted and script_code:
        fields["status"] = "interrupted"
    elif script_code > 0 and profile is not None and profile.status == "complete":
        fields["status"] = "failed"
    try:
        writer.manifest(**fields)
        if profile is not None:
            profile = Profile.load(writer.path)
    except ForetraceError as error:
        messages.append(str(error))
    return ScriptRun(writer.path, code, script_code, profile, messages)


def _optimizer_steps(profile: Profile) -> int:
    value = profile.manifest.get("optimizer_steps")
    return value if isinstance(value, int) else 0


def _count(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
