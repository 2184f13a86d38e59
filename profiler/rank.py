"""RankContext: what a process that `launch` started knows of itself, and how it reports back."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..datasets.errors import ForetraceError

# What gloo says on the ranks that stay behind when one dies.
_LOST_PEER = (
    "connection closed by peer", "connection reset by peer", "broken pipe", "socket closed", "timed out waiting",
    "connection refused", "socketbuffer", "gloo/transport", "application timeout",
)  # fmt: skip


class RankContext:
    """One rank's side of `launch`: its task, its place, its process group, its result."""

    def __init__(self, scratch: str | Path) -> None:
        self.scratch = Path(scratch)
        self.task: dict[str, Any] = json.loads((self.scratch / "task.json").read_text(encoding="utf-8"))
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.threads = int(os.environ["OMP_NUM_THREADS"])
        self._progress = os.open(self.scratch / "progress", os.O_WRONLY)

    def progress(self, number: int) -> None:
        """Tell the parent how far rank 0 is; a few microseconds, so call it outside of what is timed."""
        if self.rank == 0:
            os.pwrite(self._progress, b"%8d" % number, 0)

    def init_process_group(self, *, backend: str = "gloo") -> None:
        """Make the default process group; nothing to do for a single rank."""
        if self.world_size > 1:
            from torch import distributed

            distributed.init_process_group(
                backend,
                init_method=f"file://{self.scratch / 'rendezvous'}",
                rank=self.rank,
                world_size=self.world_size,
            )

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            from torch import distributed

            distributed.barrier()

    def result(self, **fields: Any) -> None:
        """Leave what the parent gets back; without it the parent takes the rank for unfinished."""
        self._write("result", fields)

    def wait_for_all(self, *, patience_s: float = 60.0) -> None:
        """Return when every rank has left its result: who exits first would look like a lost peer to the others.

        No barrier, because its last message is just what an early exit would cut off.
        """
        deadline = time.monotonic() + patience_s
        results = [self.scratch / f"result.rank{rank}.json" for rank in range(self.world_size)]
        while not all(path.exists() for path in results) and time.monotonic() < deadline:
            time.sleep(0.01)

    def fail(self, error: BaseException) -> None:
        """Leave why this rank ends."""
        text = str(error)
        ours = isinstance(error, ForetraceError)
        self._write(
            "error",
            {
                "kind": type(error).__name__,
                "message": text if ours else _told(error),
                "ours": ours,
                "lost_peer": not ours and any(sign in text.lower() for sign in _LOST_PEER),
                "time_s": time.monotonic(),
            },
        )

    def _write(self, name: str, data: dict[str, Any]) -> None:
        path = self.scratch / f"{name}.rank{self.rank}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(data), encoding="utf-8")
        temporary.replace(path)


def rank_main(body: Callable[[RankContext], None]) -> None:
    """Run `body` as one rank: report errors to the parent, end with the parent, leave no thread behind.

    Exit codes: 0 done, 1 failed (reported), 130 interrupted.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    context = RankContext(sys.argv[1])
    code = 0
    try:
        body(context)
        context.wait_for_all()
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        context.fail(error)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: with a peer gone, taking down gloo's threads and groups can wait for it.
    os._exit(code)


def _end_with_parent() -> None:
    # The parent holds the other end and never writes: reading returns when it is gone, kill -9 included.
    os.read(0, 1)
    os._exit(1)


def _told(error: BaseException) -> str:
    """`ValueError: text (file.py, line 12)` with the innermost line outside of installed libraries and of foretrace."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    here = str(Path(__file__).parent.parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith(here) and frame.filename[0] != "<"
    ]
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text
