"""`foretrace datasets devices`: the catalog as a table, or one device in full with the source of each number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .folders import json_option
from .render.json import print_json
from .render.terminal import print_table, size, table, warn

if TYPE_CHECKING:
    from ..datasets.catalog import DeviceFacts, Match

COLUMNS = ("device", "type", "year", "bf16 or fp16 TFLOP/s", "fp32 TFLOP/s", "memory", "GB/s", "W", "link GB/s")


@click.command("devices")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the devices of the catalog and your own, or show one.

    NAME is a key, an alias ("h100-sxm"), the name that the driver or the OS gives ("NVIDIA H100 80GB HBM3"), "this", or
    the path of a device file. Peaks are dense datasheet figures, or measured where the file says so.
    """
    from ..datasets import catalog

    if name is not None:
        match = catalog.find(name)
        if as_json:
            print_json(_document(match))
        else:
            _show(match)
        return
    mine, problems = catalog.user_devices()
    known = catalog.devices()
    if as_json:
        print_json({"devices": [_plain(facts) for facts in known.values()], "problems": problems})
        return
    for problem in problems:
        warn(problem)
    print_table(table(COLUMNS, [_row(facts, key in mine) for key, facts in known.items()]))


def _row(facts: DeviceFacts, own: bool) -> tuple[Any, ...]:
    half = facts.flops_per_s.get("bf16") or facts.flops_per_s.get("fp16")
    link = facts.link_bytes_per_s
    return (
        facts.key + (" (yours)" if own else ""), facts.type, facts.year, _scaled(half, 1e12),
        _scaled(facts.flops_per_s.get("fp32"), 1e12), None if facts.memory_bytes is None else size(facts.memory_bytes),
        _scaled(facts.memory_bytes_per_s, 1e9), facts.tdp_w, _scaled(link, 1e9),
    )  # fmt: skip


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _show(match: Match) -> None:
    facts = match.facts
    if match.confidence in ("low", "medium"):
        warn(f"{match.asked!r} was read as {facts.key} (confidence {match.confidence}): {match.note}")
    rate = "measured" if facts.measured else "dense peak"
    rows: list[tuple[str, str | None, str]] = [("key", facts.key, "")]
    rows += [
        (label, text, "")
        for label, text in (
            ("type", facts.type), ("vendor", facts.vendor), ("architecture", facts.arch), ("family", facts.family),
            ("year", None if facts.year is None else str(facts.year)),
        )
    ]  # fmt: skip
    for dtype, value in facts.flops_per_s.items():
        unit = "TOP/s" if dtype.startswith("int") else "TFLOP/s"
        rows.append((f"{dtype}, {rate}", f"{value / 1e12:.4g} {unit}", facts.source_of("flops_per_s")))
    for field, label, scale, unit in (
        ("memory_bytes_per_s", "memory bandwidth", 1e9, "GB/s"), ("memory_bytes", "memory", 2**30, "GiB"),
        ("sm_count", "SMs, CUs or cores", 1, ""), ("cores_per_sm", "fp32 lanes of each", 1, ""),
        ("l2_bytes", "last cache", 2**20, "MiB"), ("clock_hz", "clock", 1e6, "MHz"), ("tdp_w", "power cap", 1, "W"),
        ("link_bytes_per_s", f"link ({facts.link or 'unknown'}), each way", 1e9, "GB/s"),
        ("pcie_bytes_per_s", f"PCIe {facts.pcie_gen or ''}, each way".replace(" ,", ","), 1e9, "GB/s"),
    ):  # fmt: skip
        value = getattr(facts, field)
        text = None if value is None else f"{value / scale:.6g} {unit}".rstrip()
        rows.append((label, text, facts.source_of(field) if value is not None else ""))
    print_table(table(("what", "value", "source"), [(label, text, source) for label, text, source in rows]))
    if facts.notes:
        click.echo(f"\n{facts.notes}")


def _document(match: Match) -> dict[str, Any]:
    """A device file of the entry, and what the name was taken for; saved, it is an entry that can be edited."""
    how = {"asked": match.asked, "how": match.how, "confidence": match.confidence, "note": match.note}
    return {"kind": "device", "match": how, **_plain(match.facts)}


def _plain(facts: DeviceFacts) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(facts)
    return document
