"""Trace files that the profiler wrote with unescaped labels, made readable again, one name at a time.

torch writes a label as it is: `record_function('a "b"')` makes the whole file invalid JSON (pytorch/pytorch#113001).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..datasets.errors import InputError
from ..datasets.store.files import reason

# A name ends where the next key begins or the line does.
_NAME = re.compile(r'^(?P<before>.*?"name":\s*")(?P<name>.*?)(?P<after>"(?:,\s*"[\w ]+":.*|\s*[,}\]]*\s*))$')


def read_trace(path: Path) -> tuple[dict[str, Any], int]:
    """(JSON object, how many names had to be repaired). Raises `InputError` naming the line that makes no sense."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the trace: {reason(error)}") from error
    if not content.strip():
        raise InputError(f"{path}: the trace is empty; nothing was recorded")
    document, repaired = loads(content, str(path))
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no trace: expected a JSON object, found {type(document).__name__}")
    return document, repaired


def loads(content: bytes, where: str) -> tuple[Any, int]:
    """As `read_trace`, of bytes; `where` opens the message."""
    import msgspec

    try:
        return msgspec.json.decode(content), 0
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text, repaired = repair_names(content.decode("utf-8", errors="replace"))
    try:
        # Not strict: raw control characters pass, and so do NaN and integers of any size.
        return json.loads(text, strict=False), repaired
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: line {error.lineno}, column {error.colno}: is damaged or cut short "
            f"({error.msg}); record it again"
        ) from error


def repair_names(text: str) -> tuple[str, int]:
    """Escape quotes and backslashes inside names, line by line; the text and the number of names that were changed."""
    lines = text.split("\n")
    repaired = 0
    for number, line in enumerate(lines):
        if '"name":' not in line:
            continue
        found = _NAME.match(line)
        if found is None or _sound(found["name"]):
            continue
        lines[number] = found["before"] + json.dumps(found["name"], ensure_ascii=False)[1:-1] + found["after"]
        repaired += 1
    return "\n".join(lines), repaired


def _sound(name: str) -> bool:
    try:
        return isinstance(json.loads(f'"{name}"', strict=False), str)
    except ValueError:
        return False
