"""Machine: one machine's device file, what `foretrace profile machine` measured and `foretrace predict` prices with."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .errors import InputError, SchemaError, UsageError
from .schemas import SCHEMA_VERSION, empty, schema_of, validate
from .store.files import encode, read_json, reason, write_text
from .store.reader import check_version
from .store.writer import now
from .version import __version__

if TYPE_CHECKING:
    import pandas as pd

CACHE_VARIABLE = "FORETRACE_CACHE_DIR"
KIND = "machine"
TABLE_NAMES = ("ops", "collectives", "host")
_MEASURE = "run: foretrace profile machine --quick"


def cache_dir() -> Path:
    """`$FORETRACE_CACHE_DIR`, else `~/.cache/foretrace`. Not created here."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "foretrace"


def default_path() -> Path:
    """Where this machine's device file lies."""
    return cache_dir() / "machine.json"


def _frame(table: str) -> pd.DataFrame:
    return empty(table).to_pandas()


@dataclass(eq=False, kw_only=True)
class Machine:
    """A measured machine. The tables are not to be changed once `content_hash` was asked for."""

    name: str
    created: str = field(default_factory=now)
    """ISO 8601, UTC."""
    facts: dict[str, Any] = field(default_factory=dict)
    """cpu_model, usable_cores, affinity, quota_cores, memory_bytes, caches_bytes (by level), torch, blas, platform, and
    mood: how much the machine's speed came and went during its sweep, log-standard deviation of a fixed probe."""
    ops: pd.DataFrame = field(default_factory=partial(_frame, "ops"))
    """OPS rows, timed by thread count and by how many processes ran at once."""
    collectives: pd.DataFrame = field(default_factory=partial(_frame, "collectives"))
    """COLLECTIVES rows, with compute idle and busy."""
    host: pd.DataFrame = field(default_factory=partial(_frame, "host"))
    """HOST rows: what the host pays per op."""
    peaks: dict[str, float | None] = field(default_factory=dict)
    """Peak rates with the unit in the key, `fp32_flops_per_s_1_thread`."""
    quick: bool = False
    """Measured by the short sweep."""
    seconds_taken_s: float | None = None

    def save(self, path: str | Path) -> Path:
        """Write one JSON file atomically, making its folder; the path. Raises `SchemaError`, `RunError`."""
        path = Path(path)
        text = encode(self.to_dict(where=str(path)), indent=None) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot make its folder: {reason(error)}; choose another file") from error
        write_text(path, text)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Machine:
        """Read a device file. Raises `InputError` when it is absent, damaged or of another kind, `SchemaError` with
        table, row and column when a row breaks its schema."""
        path = Path(path)
        document = read_json(path, what="device file")
        if document.get("kind") != KIND:
            raise InputError(
                f"{path}: is no device file: kind is {document.get('kind')!r}, expected {KIND!r}; name a file "
                "written by foretrace profile machine -o FILE"
            )
        check_version(document, path)
        facts = _mapping(document, "facts", path)
        cores = facts.get("usable_cores")
        if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
            raise SchemaError(
                f"{path}: facts.usable_cores must be a whole number of at least 1, found {cores!r}; measure again"
            )
        mood = facts.get("mood")
        if mood is not None and (not isinstance(mood, int | float) or isinstance(mood, bool) or not 0 <= mood < 10):
            raise SchemaError(f"{path}: facts.mood must be a number from 0 to 10 or null, found {mood!r}")
        peaks = _mapping(document, "peaks", path)
        for key, value in peaks.items():
            if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or value < 0):
                raise SchemaError(f"{path}: peaks.{key} must be a number of at least 0 or null, found {value!r}")
        if not isinstance(document.get("name"), str) or not document["name"]:
            raise SchemaError(f"{path}: name must be a text, found {document.get('name')!r}")
        tables = {name: _table(document, name, path).to_pandas() for name in TABLE_NAMES}
        taken = document.get("seconds_taken_s")
        if taken is not None and (not isinstance(taken, int | float) or isinstance(taken, bool)):
            raise SchemaError(f"{path}: seconds_taken_s must be a number or null, found {taken!r}")
        return cls(
            name=document["name"], created=str(document.get("created", "")), facts=facts, peaks=peaks,
            quick=bool(document.get("quick", False)), seconds_taken_s=taken, **tables,
        )  # fmt: skip

    @classmethod
    def this(cls) -> Machine:
        """This machine's device file from `default_path()`. Raises `InputError` with the command that makes it."""
        path = default_path()
        if not path.exists():
            raise InputError(f"{path}: this machine was not measured yet; {_MEASURE}")
        return cls.load(path)

    def to_dict(self, *, where: str = "machine") -> dict[str, Any]:
        """The whole content as JSON types, tables as columns. Raises `SchemaError` when a row breaks its schema."""
        return {
            "schema_version": SCHEMA_VERSION, "foretrace": __version__, "kind": KIND, "name": self.name,
            "created": self.created, "facts": self.facts, "peaks": self.peaks, "quick": self.quick,
            "seconds_taken_s": self.seconds_taken_s,
            **{
                name: validate(name, getattr(self, name), where=f"{where}: {name}").to_pydict() for name in TABLE_NAMES
            },
        }  # fmt: skip

    @cached_property
    def content_hash(self) -> str:
        """First 16 hexadecimal digits of SHA-256 over what was measured (not over our version)."""
        document = self.to_dict()
        del document["foretrace"]
        return hashlib.sha256(encode(document, indent=None).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        facts = self.facts
        rows = ", ".join(f"{len(getattr(self, name))} {name}" for name in TABLE_NAMES)
        sweep = "quick sweep" if self.quick else "full sweep"
        return (
            f"{self.name}: {facts.get('cpu_model') or 'CPU of unknown model'}, {facts.get('usable_cores')} usable "
            f"cores, torch {facts.get('torch')}; {rows} rows; {sweep} of {self.created}"
        )


def _mapping(document: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: {name} must be a JSON object, found {type(value).__name__}")
    return value


def _table(document: dict[str, Any], name: str, path: Path) -> pa.Table:
    """One table from its columns; columns of a later version are left out."""
    columns = document.get(name, {})
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise SchemaError(f"{path}: {name} must be a JSON object of columns, each an array")
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        longest, shortest = max(lengths, key=lengths.__getitem__), min(lengths, key=lengths.__getitem__)
        raise SchemaError(
            f"{path}: {name}: columns differ in length: {longest} has {lengths[longest]} rows, {shortest} has "
            f"{lengths[shortest]}; the file was edited or cut"
        )
    known = [column for column in schema_of(name).names if column in columns]
    rows = [
        dict(zip(known, values, strict=True)) for values in zip(*(columns[column] for column in known), strict=True)
    ]
    return validate(name, rows, where=str(path))
