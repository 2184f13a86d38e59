"""Catalog files: JSON records by kind, shipped in this folder or written by a user."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import InputError, SchemaError
from ..store.files import read_json
from .facts import DTYPES, DeviceFacts, LinkFacts, SystemFacts

HERE = Path(__file__).parent
TYPES = ("gpu", "tpu", "npu", "ipu", "cpu")
_POSITIVE = (
    "memory_bytes_per_s", "memory_bytes", "sm_count", "cores_per_sm", "l2_bytes", "clock_hz", "tdp_w", "pcie_gen",
    "pcie_bytes_per_s",
)  # fmt: skip

Record = TypeVar("Record", DeviceFacts, LinkFacts, SystemFacts)


def user_folder() -> Path:
    """Where a user's own device files lie: `$FORETRACE_CACHE_DIR/devices`. Not created here."""
    from ..machine import cache_dir

    return cache_dir() / "devices"


@lru_cache(maxsize=1)
def shipped_devices() -> dict[str, DeviceFacts]:
    """Every shipped device by key, in the order of their keys."""
    found = [_decode(path.read_bytes(), DeviceFacts, path) for path in (HERE / "devices").glob("*.json")]
    return {facts.key: facts for facts in sorted(found, key=lambda facts: facts.key.casefold())}


@lru_cache(maxsize=1)
def shipped_links() -> dict[str, LinkFacts]:
    """Every link by key."""
    path = HERE / "links.json"
    rows = msgspec.json.decode(path.read_bytes())["links"]
    return {row["key"]: _convert(row, LinkFacts, path) for row in rows}


@lru_cache(maxsize=1)
def shipped_systems() -> dict[str, SystemFacts]:
    """Every system by key."""
    found = [_decode(path.read_bytes(), SystemFacts, path) for path in (HERE / "systems").glob("*.json")]
    return {facts.key: facts for facts in sorted(found, key=lambda facts: facts.key)}


@lru_cache(maxsize=2)
def shipped_names(table: str) -> tuple[dict[str, str], ...]:
    """Rows of `aliases` (spellings of tables and people) or `reported` (names that a driver or the OS gives)."""
    with (HERE / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def read_device(path: Path) -> DeviceFacts:
    """A user's device: a file in the layout of the shipped ones, or one that `foretrace profile machine` wrote.

    Raises `InputError` when the file cannot be read or is of another kind, `SchemaError` with the field that is wrong.
    """
    from ..machine import KIND as MACHINE
    from ..machine import Machine
    from ..store.reader import check_version

    document = read_json(path, what="device file")
    kind = document.get("kind")
    if kind == MACHINE:
        return DeviceFacts.from_machine(Machine.load(path))
    if kind != "device":
        raise InputError(
            f"{path}: is no device file: kind is {kind!r}, expected 'device' or {MACHINE!r}; write one with "
            "foretrace profile machine -o FILE, or copy one from foretrace datasets devices NAME --json"
        )
    check_version(document, path)
    return _device(document, path)


def user_devices() -> tuple[dict[str, DeviceFacts], list[str]]:
    """Devices of the user folder by key, and what is wrong with the files that cannot be used."""
    found: dict[str, DeviceFacts] = {}
    problems = []
    for path in sorted(user_folder().glob("*.json")):
        try:
            facts = read_device(path)
        except InputError as error:
            problems.append(str(error))
            continue
        if facts.key in shipped_devices() or facts.key in found:
            problems.append(f"{path}: key {facts.key!r} is taken by another device; rename it")
        else:
            found[facts.key] = facts
    return found, problems


def _decode(text: bytes, kind: type[Record], path: Path) -> Record:
    return _convert(msgspec.json.decode(text), kind, path)


def _convert(row: dict[str, object], kind: type[Record], path: Path) -> Record:
    fields = {name: value for name, value in row.items() if name not in ("schema_version", "kind", "match")}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise SchemaError(f"{path}: is not as a {kind.__name__} must be: {error}; correct the field") from error


def _device(document: dict[str, object], path: Path) -> DeviceFacts:
    facts = _convert(document, DeviceFacts, path)

    def check(sound: bool, field: str, wanted: str, found: object) -> None:
        if not sound:
            raise SchemaError(f"{path}: {field} must be {wanted}, found {found!r}")

    check(bool(facts.key.strip()), "key", "a text", facts.key)
    check(facts.type in TYPES, "type", f"one of {', '.join(TYPES)}", facts.type)
    for dtype, rate in facts.flops_per_s.items():
        check(dtype in DTYPES, "flops_per_s", f"by dtype, one of {', '.join(DTYPES)}", dtype)
        check(0 < rate < 1e21, f"flops_per_s.{dtype}", "above 0 in FLOP per second", rate)
    for field in _POSITIVE:
        value = getattr(facts, field)
        check(value is None or 0 < value < 1e21, field, "above 0 or absent when not known", value)
    link = facts.link_bytes_per_s
    check(link is None or 0 <= link < 1e18, "link_bytes_per_s", "at least 0 or absent when not known", link)
    return facts
