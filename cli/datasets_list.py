"""`foretrace datasets list`: run folders and device files below a folder and in the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import ForetraceError, InputError
from .folders import json_option
from .render.json import print_json
from .render.terminal import print_table, say, table

if TYPE_CHECKING:
    from ..datasets.profile import Profile

SEARCH_DEPTH = 4
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}


@click.command("list")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@json_option
def command(folder: Path | None, as_json: bool) -> None:
    """List run folders and device files under FOLDER (default: here) and in the cache."""
    from ..datasets.machine import cache_dir

    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    roots = [folder or Path(), cache_dir()]
    found: dict[Path, dict[str, Any]] = {}
    for root in roots:
        for path in _walk(root, SEARCH_DEPTH):
            if path.resolve() not in found and (entry := _entry(path)) is not None:
                found[path.resolve()] = entry
    entries = sorted(found.values(), key=lambda entry: (entry["kind"], entry["path"]))
    if as_json:
        print_json({"entries": entries})
        return
    if not entries:
        say(f"no run folder and no device file under {' or '.join(map(str, roots))}")
        return
    rows = [
        (
            entry["kind"], entry["path"], entry["what"], entry["plan"], entry["status"],
            None if entry["step_time_s"] is None else f"{1e3 * entry['step_time_s']:.2f}", entry["created"],
        )
        for entry in entries
    ]  # fmt: skip
    print_table(table(("kind", "path", "what", "plan", "status", "step ms", "created"), rows))


def _walk(root: Path, depth: int) -> Iterator[Path]:
    """Run folders and JSON files under `root`, not deeper than `depth`, hidden and library folders left out."""
    from ..datasets.store import is_run_folder

    if not root.is_dir():
        return
    if is_run_folder(root):
        yield root
        return
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir() and not entry.is_symlink() and depth > 0:
            yield from _walk(entry, depth - 1)
        elif entry.suffix == ".json" and entry.is_file():
            yield entry


def _entry(path: Path) -> dict[str, Any] | None:
    """One line of `list`; None when the path is nothing of ours. A damaged one of ours is listed as such."""
    from ..datasets.machine import Machine
    from ..datasets.profile import Profile

    entry = dict.fromkeys(("what", "plan", "status", "step_time_s", "created"))
    entry["path"] = str(path)
    try:
        if path.is_dir():
            profile = Profile.load(path, repair=False, tables=("steps",))
            return {
                **entry, "kind": "profile", "what": _what(profile), "status": profile.status,
                "plan": None if profile.plan is None else str(profile.plan), "step_time_s": profile.step_time_s,
                "created": profile.manifest.get("created"), "problems": profile.problems,
            }  # fmt: skip
        if not _looks_like_machine(path):
            return None
        machine = Machine.load(path)
        sweep = "quick" if machine.quick else "full"
        return {**entry, "kind": "machine", "what": machine.name, "status": sweep, "created": machine.created}
    except ForetraceError as error:
        kind = "profile" if path.is_dir() else "machine"
        return {**entry, "kind": kind, "status": "damaged", "problems": [str(error)]}


def _looks_like_machine(path: Path) -> bool:
    """Cheap test before a whole file is read: `list` meets any JSON file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        text = file.read(1 << 20) if size <= 1 << 28 else b""
    return b'"foretrace"' in text and b'"kind": "machine"' in text


def _what(profile: Profile) -> str | None:
    workload = profile.manifest.get("workload")
    if isinstance(workload, dict):
        return str(workload.get("reference") or workload.get("name") or "workload")
    command_line = profile.manifest.get("command")
    if isinstance(command_line, list):
        return " ".join(map(str, command_line))
    return None if command_line is None else str(command_line)
