"""launch: run one Python module as several rank processes on this host, and end all of them when one dies.

Ranks find each other over a file in a scratch folder instead of a port: no port can be taken by somebody else between
choosing and using it. A rank ends on its own when its parent is gone, however the parent went.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets import errors
from ..datasets.errors import RunError

POLL_S = 0.05
GRACE_S = 0.5
"""How long the others of a failed rank may take to report, so that the first cause can be told from its echoes."""
END_S = 3.0
"""How long ranks may take to end when asked, before they are killed."""
STDERR_LINES = 8


@dataclass(frozen=True)
class RankFailure:
    """Why one rank ended badly."""

    rank: int
    code: int
    """Exit code; negative is the signal's number."""
    report: dict[str, Any] | None
    """What the rank said itself (`kind`, `message`, `lost_peer`, `time_s`); None when it could not."""
    stderr: str

    @property
    def cause_order(self) -> tuple[int, float]:
        """Sorts the likeliest first cause first: killed, silent death, own error, then who only lost its peer."""
        if self.code < 0:
            return (0, 0.0)
        if self.report is None:
            return (1, 0.0)
        return (3 if self.report["lost_peer"] else 2, self.report["time_s"])


def launch(
    module: str,
    task: dict[str, Any],
    *,
    world_size: int,
    threads: int,
    what: str,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run `python -m module SCRATCH` in `world_size` processes; what each wrote as its result, by rank.

    A rank reads `task` and its place from `RankContext`. `threads` are set for OpenMP and MKL before anything is
    imported. `what` opens every message ("training gpt under dp=2"). `progress` is called with the number that rank 0
    last reported.

    Raises the rank's own `ForetraceError` when there is one, else `RunError` with rank, code or signal, and the last
    lines of its stderr. `KeyboardInterrupt` passes on after all ranks have ended.
    """
    with tempfile.TemporaryDirectory(prefix="foretrace-ranks-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        (scratch / "task.json").write_text(json.dumps(task), encoding="utf-8")
        (scratch / "progress").write_bytes(b"")
        processes: list[subprocess.Popen[bytes]] = []
        ask_with = signal.SIGTERM
        try:
            for rank in range(world_size):
                processes.append(_start(module, scratch, rank, world_size, threads))
            _watch(processes, scratch, what, progress)
        except KeyboardInterrupt:
            # The ranks are in sessions of their own, so that this is the only signal they get.
            ask_with = signal.SIGINT
            raise
        finally:
            _end(processes, ask_with)
        return [_read_json(scratch / f"result.rank{rank}.json") or {} for rank in range(world_size)]


def _start(module: str, scratch: Path, rank: int, world_size: int, threads: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    environment.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        OMP_NUM_THREADS=str(threads),
        MKL_NUM_THREADS=str(threads),
        PYTHONFAULTHANDLER="1",
    )
    # gloo looks up the host's name for an address, which fails or is slow on many laptops and containers.
    if "GLOO_SOCKET_IFNAME" not in environment and (interface := _loopback()):
        environment["GLOO_SOCKET_IFNAME"] = interface
    with (scratch / f"stderr.rank{rank}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(scratch)],
            env=environment,
            # Held open by this process only: a rank that reads its end knows that the parent is gone.
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _loopback() -> str | None:
    import socket

    with suppress(OSError, AttributeError):
        names = [name for _, name in socket.if_nameindex()]
        return next((name for name in ("lo", "lo0") if name in names), None)
    return None


def _watch(
    processes: list[subprocess.Popen[bytes]], scratch: Path, what: str, progress: Callable[[int], None] | None
) -> None:
    seen = -1
    while True:
        codes = [process.poll() for process in processes]
        if any(code not in (None, 0) for code in codes):
            time.sleep(GRACE_S)
            codes = [process.poll() for process in processes]
            raise _failure([_failed(scratch, rank, code) for rank, code in enumerate(codes) if code], what, len(codes))
        for rank, code in enumerate(codes):
            if code == 0 and not (scratch / f"result.rank{rank}.json").exists():
                raise RunError(
                    f"{what}: rank {rank} of {len(codes)} exited with 0 before it was done; does the workload call "
                    f"sys.exit or os._exit?{_tail(scratch, rank)}"
                )
        if all(code == 0 for code in codes):
            return
        if progress is not None:
            with suppress(ValueError, OSError):
                now = int((scratch / "progress").read_bytes() or b"-1")
                if now != seen:
                    progress(now)
                    seen = now
        time.sleep(POLL_S)


def _failed(scratch: Path, rank: int, code: int) -> RankFailure:
    return RankFailure(rank, code, _read_json(scratch / f"error.rank{rank}.json"), _tail(scratch, rank))


def _failure(failures: list[RankFailure], what: str, world_size: int) -> errors.ForetraceError:
    """The exception for the likeliest first cause among the ranks that ended badly."""
    first = min(failures, key=lambda failure: failure.cause_order)
    report = first.report
    if report is not None and report["ours"]:
        return getattr(errors, report["kind"], RunError)(report["message"])
    who = f"rank {first.rank} of {world_size}"
    if first.code < 0:
        try:
            name = signal.Signals(-first.code).name
        except ValueError:
            name = "a signal"
        hint = "; out of memory is the usual reason" if name == "SIGKILL" else ""
        found = f"{who} was killed by {name} (signal {-first.code}){hint}"
    elif report is not None:
        found = f"{who} raised {report['message']}"
    else:
        found = f"{who} exited with {first.code}"
    others = "; the other ranks were ended" if world_size > 1 else ""
    return RunError(f"{what}: {found}{others}.{first.stderr}")


def _tail(scratch: Path, rank: int) -> str:
    """The last lines that a rank printed, ready to be appended to a message; empty when it printed nothing."""
    with suppress(OSError):
        lines = (scratch / f"stderr.rank{rank}").read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line for line in lines if line.strip()][-STDERR_LINES:]
        if lines:
            return "".join([f" Last lines of rank {rank}:", *(f"\n  | {line[:300]}" for line in lines)])
    return ""


def _end(processes: list[subprocess.Popen[bytes]], signal_number: int) -> None:
    """Ask, wait, kill; returns when no rank is left."""
    for process in processes:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal_number)
    deadline = time.monotonic() + END_S
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
