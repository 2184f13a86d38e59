"""Atomic files: a reader sees the old content or the new one, never half of it, whenever the writer dies.

Content goes to a hidden temporary name in the same folder, is flushed to the disk, and is then renamed.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import ForetraceError, InputError, RunError

TEMPORARY = ".tmp"
DAMAGED = ".damaged"

_counter = itertools.count()

_ADVICE = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another folder",
    errno.EFBIG: "raise the file size limit (ulimit -f) or record less",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that can be written",
    errno.EPERM: "choose a folder that can be written",
    errno.ENOTDIR: "a file is in the way; choose another folder",
}


def reason(error: OSError) -> str:
    """Why the system refused, in lower case."""
    return (error.strerror or str(error)).lower()


def write_error(error: OSError, path: Path, kind: type[ForetraceError] = RunError) -> ForetraceError:
    """What to tell a user whose file could not be written; raise it `from` the original."""
    advice = _ADVICE.get(error.errno or 0, "check the folder and try again")
    return kind(f"{path}: cannot write: {reason(error)}; {advice}")


def temporary_path(path: Path) -> Path:
    """A hidden name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{next(_counter)}{TEMPORARY}")


@contextmanager
def replacing(path: Path, kind: type[ForetraceError] = RunError) -> Iterator[Path]:
    """Gives a temporary path to fill; on success it takes the place of `path`, on any error it is removed.

    An `OSError` inside becomes `kind` with file, cause and advice.
    """
    temporary = temporary_path(path)
    try:
        yield temporary
        flush(temporary)
        temporary.replace(path)
    except OSError as error:
        raise write_error(error, path, kind) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_new(path_of: Callable[[int], Path], fill: Callable[[Path], None], first: int = 0) -> Path:
    """Fill a file and give it the first free name of `path_of(first)`, `path_of(first + 1)`, ...; the name it got.

    Two writers never take the same name: a hard link fails when the name exists, a rename would overwrite.
    """
    number = first
    path = path_of(number)
    temporary = temporary_path(path)
    try:
        fill(temporary)
        flush(temporary)
        while True:
            path = path_of(number)
            try:
                os.link(temporary, path)
                return path
            except FileExistsError:
                number += 1
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                if path.exists():  # a file system without hard links: the best that is left
                    number += 1
                    continue
                temporary.replace(path)
                return path
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def flush(path: Path) -> None:
    """Bring a file to the disk. Quotas of network file systems are first reported here."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, kind: type[ForetraceError] = RunError) -> None:
    """Write a whole text file atomically."""
    with replacing(path, kind) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: Path, document: Mapping[str, Any], kind: type[ForetraceError] = RunError) -> None:
    """Write one JSON document atomically."""
    write_text(path, encode(document) + "\n", kind)


def encode(document: Any, *, indent: int | None = 1) -> str:
    """JSON text with sorted keys and no NaN: what is not a finite number is null."""
    return json.dumps(plain(document), sort_keys=True, indent=indent, allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """`value` as JSON types. NaN and infinity become None, numpy scalars their values, paths their text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """One JSON object. Raises `InputError` saying where the text stops making sense."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such {what}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no {what}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read the {what}: {reason(error)}") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        found = "is empty" if not text.strip() else f"is damaged or cut short{place}"
        raise InputError(f"{path}: the {what} {found}; write it again") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no {what}: expected a JSON object, found {type(document).__name__}")
    return document


def set_aside(path: Path) -> str:
    """Rename a damaged file to `NAME.damaged`; says in words what was done, for a list of problems."""
    target = path.with_name(path.name + DAMAGED)
    number = 1
    while target.exists():
        target = path.with_name(f"{path.name}.{number}{DAMAGED}")
        number += 1
    try:
        path.rename(target)
    except OSError as error:
        return f"could not set it aside: {reason(error)}"
    return f"set aside as {target.name}"
