"""Tables of collectives as arrays of what a price depends on: links, traffic, and what marks a curve.

One row of a table is one message size of one curve; everything but the size is the curve's. Curves are coded once, so
that a table of a hundred thousand rows costs a few thousand look-ups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....datasets import catalog
from ....datasets.errors import UsageError
from .backends import FAMILIES, family_of, version_of
from .links import Links, links_of
from .traffic import KINDS, Traffic, traffic_of

if TYPE_CHECKING:
    import pandas as pd

CURVE_COLUMNS = (
    "source", "device", "interconnect", "backend", "collective", "ranks", "nodes", "gpus_per_node", "dtype", "notes",
)  # fmt: skip
MAX_BYTES = 2.0**53
NOT_OF_THE_CURVE = ("tokens",)
"""Keys in notes that are the message size said differently."""
_SOURCES = ("-collectives", "-nccl", "-custom-allreduce", "-deepep")
_ONE_BYTE = ("int8", "uint8", "fp8", "fp8_e4m3", "fp8_e5m2")
_TWO_BYTES = ("half", "fp16", "bf16", "float16", "bfloat16")


@dataclass(frozen=True)
class Curve:
    """All that a price depends on but the message size. Texts are empty and numbers 0 where a table does not say."""

    kind: str
    device: str
    """Key of the catalog."""
    family: str
    """Family of the backend."""
    version: str
    source: str
    """Who measured it, and so how: wall clock or kernel time, mean or median."""
    wires: str
    """The table's words for the interconnect."""
    width: str
    """Bytes of an element, as a text: reductions differ by it."""
    ranks: int
    nodes: int
    per_node: int
    links: Links
    traffic: Traffic
    options: tuple[tuple[str, float], ...] = ()
    """Numbers in the notes (hidden, topk, experts, sms), sorted by name."""
    label: str = ""
    """What notes say otherwise."""


def curve_of(row: dict[str, object]) -> Curve:
    """One table row's curve. Raises `UsageError` in one line that names what is known."""
    kind = _text(row.get("collective"))
    if kind not in KINDS:
        raise UsageError(f"collective {kind!r} is not known; known are {', '.join(KINDS)}")
    facts = catalog.device(_text(row.get("device")))
    ranks = _count(row.get("ranks"), "ranks", least=2)
    nodes = _count(row.get("nodes"), "nodes", least=1, default=ranks if facts.type == "cpu" else 1)
    per_node = _count(row.get("gpus_per_node"), "gpus_per_node", least=1, default=max(ranks // nodes, 1))
    if nodes > ranks:
        raise UsageError(f"{ranks} ranks cannot span {nodes} nodes; give nodes from 1 to ranks")
    backend = _text(row.get("backend"))
    family = family_of(backend) if backend else ("mpi" if facts.type == "cpu" else "nccl")
    if family is None:
        raise UsageError(f"backend {backend!r} is not known; names that begin with {', '.join(FAMILIES)} are")
    wires, notes = _text(row.get("interconnect")), _text(row.get("notes"))
    links = links_of(facts, wires, ranks=ranks, nodes=nodes, per_node=per_node)
    options, label = _notes(notes)
    source = _text(row.get("source"))
    for ending in _SOURCES:
        source = source.removesuffix(ending)
    return Curve(
        kind=kind, device=facts.key, family=family, version=version_of(backend, notes), source=source, wires=wires,
        width=_width(_text(row.get("dtype"))), ranks=ranks, nodes=nodes, per_node=per_node, links=links,
        traffic=traffic_of(kind, links, ranks=ranks, nodes=nodes, per_node=per_node), options=options, label=label,
    )  # fmt: skip


def curves_of(rows: pd.DataFrame) -> tuple[list[Curve], np.ndarray]:
    """The different curves of a table, and for each row the index of its own. Columns that are absent are not known.

    Raises `UsageError` naming the row (from 0) of a value that makes no sense.
    """
    names, keys, codes = _groups(rows)
    merged: dict[Curve, int] = {}
    place = []
    for first in np.unique(codes, return_index=True)[1]:
        try:
            curve = curve_of(dict(zip(names, keys.iloc[first], strict=True)))
        except UsageError as error:
            raise UsageError(f"row {first}: {error}") from error
        place.append(merged.setdefault(curve, len(merged)))
    return list(merged), np.array(place, dtype=int)[codes] if len(codes) else np.empty(0, int)


def sizes_of(rows: pd.DataFrame) -> np.ndarray:
    """The column `bytes` as float64, NaN where it is no whole number from 1 to 2^53. Raises `UsageError` without it."""
    import pandas as pd

    if "bytes" not in rows.columns:
        raise UsageError("column 'bytes' is missing; a table of collectives has the message size of each row in it")
    sizes = pd.to_numeric(rows["bytes"], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return np.where((sizes >= 1) & (sizes <= MAX_BYTES) & (sizes == np.floor(sizes)), sizes, np.nan)


def faults_of(rows: pd.DataFrame) -> dict[int, str]:
    """Row (from 0) -> why it cannot have a price, in one line each."""
    faults = {
        int(
            row
        ): f"bytes {_text(rows['bytes'].iloc[row]) or 'nothing'} makes no sense; give a whole number from 1 to 2^53"
        for row in np.flatnonzero(np.isnan(sizes_of(rows)))
    }
    names, keys, codes = _groups(rows)
    for code, first in enumerate(np.unique(codes, return_index=True)[1]):
        try:
            curve_of(dict(zip(names, keys.iloc[first], strict=True)))
        except UsageError as error:
            faults.update((int(row), str(error)) for row in np.flatnonzero(codes == code))
    return dict(sorted(faults.items()))


def _groups(rows: pd.DataFrame) -> tuple[list[str], pd.DataFrame, np.ndarray]:
    """Columns that mark a curve, their values, and the same code for rows that agree in all of them."""
    names = [name for name in CURVE_COLUMNS if name in rows.columns]
    keys = rows[names].copy()
    if "notes" in names:
        keys["notes"] = _without_size(keys["notes"])
    keys = keys.astype(object).where(keys.notna(), None)
    return names, keys, keys.groupby(names, dropna=False, sort=False, observed=True).ngroup().to_numpy()


def _without_size(notes: pd.Series) -> pd.Series:
    """Notes without what repeats the message size."""
    texts = notes.astype(object).fillna("")
    known = {
        text: ";".join(part for part in str(text).split(";") if part.partition("=")[0] not in NOT_OF_THE_CURVE)
        for text in texts.unique()
    }
    return texts.map(known)


def _notes(text: str) -> tuple[tuple[tuple[str, float], ...], str]:
    """Numbers by name, and the other words."""
    options, words = {}, []
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        try:
            options[name.strip()] = float(value) if equals else float("nan")
        except ValueError:
            words.append(part)
            continue
        if not equals:
            words.append(part)
            del options[name.strip()]
    return tuple(sorted(options.items())), ";".join(words)


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value).strip()


def _count(value: object, name: str, *, least: int, default: int | None = None) -> int:
    """A whole number of at least `least`; `default` where the table does not say."""
    if value is None or value != value:
        if default is None:
            raise UsageError(f"{name} is empty; give a whole number from {least}")
        return default
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not number == int(number if abs(number) < 2**53 else -1) or number < least:
        raise UsageError(f"{name} {value!r} makes no sense; give a whole number from {least}")
    return int(number)


def _width(dtype: str) -> str:
    if dtype.casefold() in _ONE_BYTE:
        return "1"
    return "2" if dtype.casefold() in _TWO_BYTES else dtype.casefold()
