"""StepLog: the steps table of a running script, appended without a system call.

A system call between two training steps finds every cache cold and takes tens of microseconds; a store into a mapped
page takes two. The page belongs to the file, so that a process killed with -9 loses nothing. The file is grown ahead
with newlines, which readers skip, so that a full disk is an error when growing and never a signal when storing.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
from contextlib import suppress
from pathlib import Path

from ..datasets.schemas import SCHEMA_VERSION
from ..datasets.store import RunWriter
from ..datasets.store.files import write_error
from ..datasets.version import __version__

CHUNK_BYTES = 1 << 16
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})
"""File systems that keep the space they once gave to a file; a copy-on-write or network one may refuse it later."""


_LINE = b'{"step":%d,"start_s":%de-9,"end_s":%de-9,"time_s":%de-9,"skipped":%s,"profiled":%s,"hook_s":%de-9}\n'
_WORDS = (b"false", b"true")


class StepLog:
    """Appends to the file that `RunWriter.step` would append to; on other file systems it is that. `close` ends it."""

    def __init__(self, writer: RunWriter) -> None:
        self.path = writer.path / f"steps.rank{writer.rank}.jsonl"
        self._writer = writer
        self._handle: int | None = None
        self._map: mmap.mmap | None = None
        self._base = 0  # where in the file the map begins, or the next line goes when there is none
        if file_system(writer.path) in LOCAL:
            self._open()

    def append(self, step: int, start_s: float, end_s: float, *, skipped: bool, profiled: bool, hook_s: float) -> None:
        """One finished step. Raises `RunError` when the disk refuses; then the line is not there."""
        if self._handle is None:
            self._writer.step(
                {
                    "step": step, "start_s": start_s, "end_s": end_s, "time_s": end_s - start_s, "skipped": skipped,
                    "profiled": profiled, "hook_s": hook_s,
                }
            )  # fmt: skip
            return
        # Whole numbers of nanoseconds: printing a float costs three times as much.
        start_ns, end_ns = int(start_s * 1e9), int(end_s * 1e9)
        line = _LINE % (
            step, start_ns, end_ns, end_ns - start_ns, _WORDS[skipped], _WORDS[profiled], int(hook_s * 1e9),
        )  # fmt: skip
        try:
            self._map.write(line)  # type: ignore[union-attr]
        except (ValueError, AttributeError):  # no room, or no map yet
            self._grow(len(line))
            self._map.write(line)  # type: ignore[union-attr]

    def close(self) -> None:
        """Cut off what was grown ahead."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        size = self._size()
        if self._map is not None:
            self._map.close()
            self._map = None
        with suppress(OSError):
            os.ftruncate(handle, size)
        os.close(handle)

    def _open(self) -> None:
        header = {"schema_version": SCHEMA_VERSION, "foretrace": __version__, "run_id": self._writer.run_id}
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._handle).st_size
            if not size:
                line = json.dumps(header).encode() + b"\n"
                size = os.pwrite(self._handle, line, 0)
                if size != len(line):
                    os.ftruncate(self._handle, 0)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise write_error(error, self.path) from error
        self._base = size

    def _size(self) -> int:
        """Bytes of the file that are lines."""
        return self._base + (self._map.tell() if self._map is not None else 0)

    def _grow(self, needed: int) -> None:
        """Give the file room for at least `needed` bytes more and map it; on failure it stays as it was."""
        assert self._handle is not None
        place = self._size()
        try:
            grown_to = os.fstat(self._handle).st_size
            grown_to += os.pwrite(self._handle, b"\n" * CHUNK_BYTES, grown_to)
            if grown_to < place + needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            base = place - place % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(self._handle, grown_to - base, offset=base)
        except OSError as error:
            raise write_error(error, self.path) from error
        mapped.seek(place - base)
        if self._map is not None:
            self._map.close()
        self._map, self._base = mapped, base


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Name of the file system that holds `path`; None where that cannot be told."""
    found: tuple[int, str | None] = (-1, None)
    place = str(path.resolve())
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        mount = fields[4].replace("\\040", " ")
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= found[0]:
            found = (len(mount), after.split()[0])
    return found[1]
