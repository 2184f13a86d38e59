"""njit: numba's decorator with one cache policy for every hot loop of the project.

Compiling takes seconds, loading from a cache milliseconds, so functions state their signatures and are cached on disk,
in the first of these folders that can be written:

1. `NUMBA_CACHE_DIR`, when it is set, for this alone;
2. `FORETRACE_CACHE_DIR`, when it is set, for all that foretrace keeps;
3. numba's own choice: `__pycache__` beside the source, then the user's cache folder;
4. `foretrace-<user id>` in the folder for temporary files, if it is ours alone.

Where none can, the function is compiled anew in each process. Decorating compiles or loads: import modules that
decorate where their functions are called, not at the top.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba


def njit(*signatures: Any) -> Callable[[Callable], Callable]:
    """Compile a function for numba `signatures`, or load it from the cache.

    Without signatures it becomes part of the compiled functions that call it. Compiled code runs without the
    interpreter's lock, checks no bounds, and divides by zero as IEEE 754 says.
    """

    def decorate(function: Callable) -> Callable:
        for folder in _cache_folders():
            try:
                with _numba_caches_in(folder):
                    return compiled(function, cache=True)
            # No folder, a full disk, a damaged or foreign file: a cache must not be the reason for a failure. An error
            # of the function itself is raised again below.
            except Exception:
                continue
        return compiled(function, cache=False)

    def compiled(function: Callable, *, cache: bool) -> Callable:
        return numba.njit(list(signatures) or None, cache=cache, nogil=True, error_model="numpy")(function)

    return decorate


def _cache_folders() -> Iterator[str | None]:
    """Folders to try in turn; None leaves the choice to numba."""
    for variable in ("NUMBA_CACHE_DIR", "FORETRACE_CACHE_DIR"):
        if chosen := os.environ.get(variable):
            yield chosen
    yield None
    if temporary := _private_temporary_folder():
        yield temporary


def _private_temporary_folder() -> str | None:
    """A folder that outlives the process and that only we can write; None if there can be none.

    Cached code is executed when it is loaded, so a folder that another user has prepared must not be used.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"foretrace-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return str(folder) if ours else None


@contextmanager
def _numba_caches_in(folder: str | None) -> Iterator[None]:
    """numba reads its setting when a function is decorated; ours must not leak into other libraries."""
    settings: Any = numba.config  # its attributes come from the environment, unseen by type checkers
    before = settings.CACHE_DIR
    settings.CACHE_DIR = before if folder is None else folder
    try:
        yield
    finally:
        settings.CACHE_DIR = before
