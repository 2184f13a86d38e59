"""RunWriter: writes one rank's part of a run folder, so that whatever was finished stays readable.

A run folder holds, for every rank R:

    manifest.json, manifest.rankR.json    what ran and how it ended (rank 0 and the others)
    TABLE.rankR.N.parquet                 rows, one file per `write`
    steps.rankR.jsonl                     one line per finished step, appended with one system call
    run.json                              which run owns the folder: the writers of one run join by its id
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ForetraceError, RunError, UsageError
from ..schemas import SCHEMA_VERSION, TABLES, validate
from ..version import __version__
from .files import DAMAGED, TEMPORARY, read_json, write_error, write_json, write_new
from .parquet import write_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

RUN_ID_VARIABLE = "FORETRACE_RUN_ID"
"""Environment variable with the run id under which all writers of one run join one folder."""

RUN_FILE = "run.json"
_JOIN_WAIT_S = 5.0


def manifest_name(rank: int) -> str:
    """File name of a rank's manifest."""
    return "manifest.json" if rank == 0 else f"manifest.rank{rank}.json"


def new_run_id() -> str:
    """A new run id; give it to the other writers of the run, as an argument or in `FORETRACE_RUN_ID`."""
    return uuid.uuid4().hex[:16]


class RunWriter:
    """Writes one rank's files of a run folder. Make it with `create`; it is a context manager.

    Leaving the block without an error closes as `complete`, with `KeyboardInterrupt` as `interrupted`, with another
    error as `failed`. A writer that is killed never closes, and the folder then reads as `unfinished`.
    """

    def __init__(self, path: Path, *, kind: str, rank: int, run_id: str) -> None:
        self.path = path
        self.kind = kind
        self.rank = rank
        self.run_id = run_id
        self.closed = False
        self._steps: int | None = None  # file descriptor of steps.rankR.jsonl
        self._steps_bytes = 0
        self._parts: dict[str, int] = {}

    @classmethod
    def create(
        cls, path: str | Path, *, kind: str, rank: int = 0, force: bool = False, run_id: str | None = None
    ) -> RunWriter:
        """Make the folder, or join it when a writer with the same run id already did.

        The run id is `run_id`, else `$FORETRACE_RUN_ID`, else a new one. Raises `UsageError` when the folder is not
        empty and belongs to no writer of this run, unless `force`, which removes an earlier run's files (and nothing
        else), and when the folder cannot be made or written.
        """
        path = Path(path)
        run_id = run_id or os.environ.get(RUN_ID_VARIABLE) or new_run_id()
        try:
            path.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                _claim(path, run_id, kind, force=force)
        except FileExistsError:
            raise UsageError(f"{path}: is a file, not a run folder; choose another folder") from None
        except OSError as error:
            raise write_error(error, path, UsageError) from error
        writer = cls(path, kind=kind, rank=rank, run_id=run_id)
        writer._merge(
            {
                "schema_version": SCHEMA_VERSION, "foretrace": __version__, "kind": kind, "run_id": run_id,
                "rank": rank, "status": "running", "created": now(),
            },
            UsageError,
        )  # fmt: skip
        return writer

    def write(self, table: str, rows: pa.Table | pd.DataFrame | Iterable[Mapping[str, Any]]) -> Path:
        """Write rows as the next part file of a table; the file it became.

        Raises `SchemaError` naming row and column before anything is written, `RunError` when the disk refuses; then
        no part of the file is left.
        """
        number = self._parts.get(table, 0)
        name = self.path / f"{table}.rank{self.rank}.{number}.parquet"
        checked = validate(table, rows, where=str(name))
        written = write_new(
            lambda n: self.path / f"{table}.rank{self.rank}.{n}.parquet",
            lambda temporary: write_rows(temporary, checked, run_id=self.run_id),
            number,
        )
        self._parts[table] = int(written.name.split(".")[-2]) + 1
        return written

    def step(self, row: Mapping[str, Any]) -> None:
        """Append one finished step. One system call; what was appended survives a killed process.

        `rank`, `skipped` and `profiled` may be left out. Checked when it is read, not here: this runs inside the
        user's training loop. Raises `RunError` when the disk refuses; the half line is taken back.
        """
        if self._steps is None:
            self._open_steps()
        self._append(_encode_line({"rank": self.rank, "skipped": False, "profiled": False, **row}))

    def manifest(self, **fields: Any) -> None:
        """Set fields of this rank's manifest; a field given before is replaced. Atomic."""
        if unknown := set(fields) & {"run_id", "rank", "schema_version", "kind"}:
            raise ValueError(f"the store sets {', '.join(sorted(unknown))} itself")
        self._merge(fields, RunError)

    def close(self, status: str = "complete", **fields: Any) -> None:
        """Record how the run ended: `complete`, `interrupted`, `failed`, ... Closing again changes nothing."""
        if self.closed:
            return
        self.closed = True
        if self._steps is not None:
            os.close(self._steps)
            self._steps = None
        self._merge({"status": status, "ended": now(), **fields}, RunError)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(ForetraceError):  # the error on its way is the one to report
            self.close("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed")

    def _merge(self, fields: Mapping[str, Any], kind: type[ForetraceError]) -> None:
        path = self.path / manifest_name(self.rank)
        try:
            with _locked(self.path):
                before = read_json(path, what="manifest") if path.exists() else {}
                write_json(path, {**before, **fields}, kind)
        except OSError as error:
            raise write_error(error, path, kind) from error

    def _open_steps(self) -> None:
        path = self.path / f"steps.rank{self.rank}.jsonl"
        try:
            self._steps = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._steps_bytes = os.fstat(self._steps).st_size
        except OSError as error:
            raise write_error(error, path) from error
        if not self._steps_bytes:
            header = {"schema_version": SCHEMA_VERSION, "foretrace": __version__, "run_id": self.run_id}
            self._append(_encode_line(header))

    def _append(self, line: bytes) -> None:
        assert self._steps is not None
        try:
            written = os.write(self._steps, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._steps_bytes += written
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._steps, self._steps_bytes)
            raise write_error(error, self.path / f"steps.rank{self.rank}.jsonl") from error


def _encode_line(row: Mapping[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(row) + b"\n"  # NaN and infinity come out as null


def now() -> str:
    """The time now in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _claim(path: Path, run_id: str, kind: str, *, force: bool) -> None:
    """Make `run_id` the owner of the folder, or join it. The caller holds the lock."""
    run_file = path / RUN_FILE
    if run_file.exists():
        try:
            owner = json.loads(run_file.read_bytes()).get("run_id")
        except (ValueError, AttributeError):
            owner = None
        if owner == run_id:
            return
    others = sorted(entry.name for entry in path.iterdir() if not entry.name.endswith(TEMPORARY))
    if others and not force:
        found = f"{others[0]} and {len(others) - 1} more" if len(others) > 1 else others[0]
        raise UsageError(f"{path}: is not empty, found {found}; choose another folder or pass --force")
    for entry in list(path.iterdir()):
        if _is_ours(entry.name):
            entry.unlink(missing_ok=True)
    document = {"schema_version": SCHEMA_VERSION, "foretrace": __version__, "run_id": run_id, "kind": kind}
    write_json(run_file, document, UsageError)


def _is_ours(name: str) -> bool:
    """True for files that the store writes itself; `force` removes no others."""
    if name == RUN_FILE or (name.startswith("manifest") and name.removesuffix(DAMAGED).endswith(".json")):
        return True
    if name.startswith(".") and name.endswith(TEMPORARY):
        return True
    table, _, rest = name.partition(".rank")
    return table in TABLES and rest.removesuffix(DAMAGED).endswith((".parquet", ".jsonl"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the folder against other writers. The lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not a Unix: single writers only
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _JOIN_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:  # a stuck writer must not stop the others
                    break
                time.sleep(0.002)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)
