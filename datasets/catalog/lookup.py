"""From a name that somebody typed, a table holds or a driver reports, to the one entry that is meant.

Names are compared whole, without regard to case and to which of space, `-` and `_` joins their parts. Never by a part
of a marketing name: "A100" is in eight products, and "H100 PCIe" has another memory than "H100 SXM5".

What drivers report (`reported.csv`) is as printed in NVIDIA's driver README (appendix of supported chips), in traces
and by lscpu; `aliases.csv` holds the spellings of public tables and those that people type.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ..errors import UsageError
from .facts import DeviceFacts, LinkFacts, SystemFacts
from .files import read_device, shipped_devices, shipped_links, shipped_names, shipped_systems, user_devices

Facts = TypeVar("Facts")

LIST = "list them with: foretrace datasets devices"


@dataclass(frozen=True)
class Match:
    """What a name was taken for."""

    facts: DeviceFacts
    asked: str
    how: str
    """key | alias | reported | user | file."""
    confidence: str
    """exact (the key itself, or a part with one meaning) | high (one part by name) | medium (form factor or power
    version read from context) | low (memory size or form factor not stated: several parts fit)."""
    note: str | None = None
    """What the name does not say, and how it was read."""


def normal(name: str) -> str:
    """A name as it is compared."""
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


def find(name: str) -> Match:
    """The device that `name` means: a key, an alias, what NVML or the OS reports, an entry of the user folder, `this`,
    or the path of a device file.

    Raises `UsageError` in one line naming close keys, or why a known spelling names no part; `InputError` for a file
    that cannot be read.
    """
    wanted = normal(name)
    devices = shipped_devices()
    if name in devices:
        return Match(devices[name], name, "key", "exact")
    key, how, confidence, note = _names().get(wanted, ("", "", "", None))
    if key:
        return Match(devices[key], name, how, confidence, note)
    if how:
        raise UsageError(f"device {name!r} is a known spelling, but {note}; {LIST}")
    if wanted == "this":
        from ..machine import Machine

        return Match(DeviceFacts.from_machine(Machine.this()), name, "file", "exact")
    if name.endswith(".json") or "/" in name:
        return Match(read_device(Path(name).expanduser()), name, "file", "exact")
    mine, _ = user_devices()
    for key, facts in mine.items():
        if normal(key) == wanted:
            return Match(facts, name, "user", "exact")
    raise UsageError(f"device {name!r} is not known{_close(wanted, (*devices, *mine))}; {LIST}")


def device(name: str) -> DeviceFacts:
    """The facts of one device by any of its names; `find` tells how sure the name was. Raises as `find` does."""
    return find(name).facts


def reported(name: str) -> Match | None:
    """The device that a driver or the OS calls `name` (NVML product name, CPU model name); None when it is not known.

    Only names that drivers report count here, so that a machine is never taken for what a person might have meant.
    """
    wanted = normal(name)
    for row in shipped_names("reported"):
        if normal(row["name"]) == wanted:
            return Match(shipped_devices()[row["device"]], name, "reported", row["confidence"], row["note"] or None)
    return None


def devices() -> dict[str, DeviceFacts]:
    """All devices by key: the shipped ones and those of the user folder."""
    mine, _ = user_devices()
    return {**shipped_devices(), **mine}


def link(key: str) -> LinkFacts:
    """One link by key, without regard to case. Raises `UsageError` naming close keys."""
    return _by_key(key, shipped_links(), "link")


def links() -> dict[str, LinkFacts]:
    """All links by key."""
    return dict(shipped_links())


def system(key: str) -> SystemFacts:
    """One system by key, without regard to case. Raises `UsageError` naming close keys."""
    return _by_key(key, shipped_systems(), "system")


def systems() -> dict[str, SystemFacts]:
    """All systems by key."""
    return dict(shipped_systems())


def _by_key(name: str, known: dict[str, Facts], what: str) -> Facts:
    for key, facts in known.items():
        if normal(key) == normal(name):
            return facts
    raise UsageError(f"{what} {name!r} is not known{_close(normal(name), known)}; known are {', '.join(known)}")


@lru_cache(maxsize=1)
def _names() -> dict[str, tuple[str, str, str, str | None]]:
    """Normal name -> (key or "", how, confidence, note). Keys win over aliases, aliases over reported names."""
    found: dict[str, tuple[str, str, str, str | None]] = {}
    for row in shipped_names("reported"):
        found[normal(row["name"])] = (row["device"], "reported", row["confidence"], row["note"] or None)
    for row in shipped_names("aliases"):
        found[normal(row["alias"])] = (row["device"], "alias", row["confidence"], row["note"] or None)
    for key in shipped_devices():
        found[normal(key)] = (key, "key", "exact", None)
    return found


def _close(wanted: str, keys: Iterable[str]) -> str:
    """ ", close are A, B", or nothing."""
    by_normal = {normal(key): key for key in keys}
    close = difflib.get_close_matches(wanted, by_normal, n=3, cutoff=0.5)
    return f", close are {', '.join(by_normal[name] for name in close)}" if close else ""
