"""JSON on stdout: one document, sorted keys, `schema_version`, null for what is not a finite number."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from ...datasets.store.files import plain

SCHEMA_VERSION = 1


def print_json(document: Mapping[str, Any]) -> None:
    """Write the one document of a command that was asked for `--json`."""
    text = json.dumps(
        {"schema_version": SCHEMA_VERSION, **plain(document)}, sort_keys=True, indent=1, allow_nan=False,
        ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf"),
    )  # fmt: skip
    sys.stdout.write(text + "\n")
