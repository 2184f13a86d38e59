"""`foretrace price op`: one op on one device, several, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import UsageError
from .op_pricing import json_option, measured_option, models_option, pricer_for, timings_option
from .render.json import print_json
from .render.terminal import duration, print_table, table

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.pricer import OpPricer, OpPrices


@click.command("op")
@click.argument("op")
@click.option("--b", type=str, help="Batches.")
@click.option("--m", type=str, help="Rows of the output; query length of attention.")
@click.option("--n", type=str, help="Columns of the output; key length of attention.")
@click.option("--k", type=str, help="Reduction; head dim of attention.")
@click.option("--heads", type=str, help="Query heads of attention.")
@click.option("--kv-heads", type=str, help="Key-value heads of attention (default: as many as query heads).")
@click.option("--window", type=str, help="Sliding window of attention, 0 for none.")
@click.option("--causal/--full", default=True, show_default=True, help="Mask of attention.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any other field of the shape.")
@click.option("--dtype", default="bf16", show_default=True)
@click.option("--direction", default="fwd", show_default=True)
@click.option("--framework", default="", help="As in the tables, such as vllm/0.19.0.")
@click.option("--source", default="", help="Measuring method to price for: a source of the tables.")
@click.option("--device", required=True, help="Catalog name, several with commas, or all.")
@timings_option
@measured_option
@models_option
@json_option
def command(**given: Any) -> None:
    """Price one op, such as: matmul --m 8192 --n 8192 --k 8192 --dtype bf16 --device h100-sxm"""
    as_json = given.pop("as_json")
    frame = _one_op(given)
    from ..datasets.ops.table import OpTable

    ops = OpTable.of_frame(frame, where="price op")
    pricer = pricer_for(given["models"], given["measured"], given["timings"], ops, near=True)
    prices = pricer.price(ops)
    entries = _entries(ops, prices, pricer)
    if as_json:
        print_json({"op": given["op"], "dtype": given["dtype"], "prices": entries})
        return
    rows = [
        (
            entry["device"], duration(entry["time_s"]), f"{duration(entry['low_s'])} to {duration(entry['high_s'])}",
            *_of_roofline(entry), entry["source"],
            "" if entry["in_range"] else "outside", entry["nearest_data"],
        )
        for entry in sorted(entries, key=lambda entry: entry["time_s"])
    ]  # fmt: skip
    heads = ("device", "time", "80 % interval", "roofline", "of roofline", "source", "measured range", "nearest data")
    print_table(table(heads, rows))


def _of_roofline(entry: dict[str, Any]) -> tuple[str, str]:
    if entry["roofline_s"] is None:
        return "unknown", ""
    return duration(entry["roofline_s"]), f"{entry['roofline_s'] / entry['time_s']:.0%}"


def _one_op(given: dict[str, Any]) -> pd.DataFrame:
    """One row for each device that was asked for. Raises `UsageError` for what no row can be."""
    import json

    import pandas as pd

    from ..datasets import catalog
    from ..datasets.ops.table import EXTRAS, LARGEST_DIM
    from ..predictor.cost.analytic.accelerator.facts import DTYPES
    from ..predictor.cost.learned.known import DIRECTIONS, required_dims

    op, dtype, direction = given["op"], given["dtype"], given["direction"]
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype}: not known; known are {', '.join(DTYPES)}")
    if direction not in DIRECTIONS:
        raise UsageError(f"--direction {direction}: not known; known are {', '.join(DIRECTIONS)}")

    def whole(name: str, text: str | None, least: int = 1) -> float | None:
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (least <= value <= LARGEST_DIM) or value != int(value):
            raise UsageError(f"--{name} {text}: expected a whole number from {least} to 2^40 for {op}; found {text!r}")
        return value

    dims = {name: whole(name, given[name]) for name in "bmnk"}
    shape: dict[str, Any] = {}
    for name, least in (("heads", 1), ("kv_heads", 1), ("window", 0)):
        if given[name] is not None:
            shape[name] = whole(name.replace("_", "-"), given[name], least)
    if op.startswith("attention"):
        shape["causal"] = given["causal"] and not op.endswith("noncausal")
    for pair in given["pairs"]:
        key, equals, value = pair.partition("=")
        if not equals or key not in EXTRAS:
            raise UsageError(f"--set {pair!r}: not a field of a shape; known are {', '.join(EXTRAS)}")
        shape[key] = whole(f"set {key}", value, 0)
    for missing in required_dims(op):
        if dims.get(missing) is None and shape.get(missing) is None:
            raise UsageError(f"price op {op}: needs {', '.join(required_dims(op))}; {missing} is missing")
    names = sorted(catalog.devices()) if given["device"] == "all" else given["device"].split(",")
    keys = [catalog.device(name).key for name in names]
    if given["device"] == "all":
        keys = [key for key in keys if catalog.device(key).flops_per_s and catalog.device(key).memory_bytes_per_s]
    row = {
        "op": op, "dtype": dtype, "direction": direction, "source": given["source"], "framework": given["framework"],
        "kernel": "", "split": "", **dims, "shape": json.dumps(shape), "flops": None, "bytes": None,
    }  # fmt: skip
    frame = pd.DataFrame([{**row, "device": key} for key in keys])
    return frame.astype(dict.fromkeys(("b", "m", "n", "k", "flops", "bytes"), float))


def _entries(ops: OpTable, prices: OpPrices, pricer: OpPricer) -> list[dict[str, Any]]:
    from ..predictor.cost.learned.known import nearest_device
    from ..predictor.cost.learned.roofline import NO_BOUND_S

    return [
        {
            "device": device, "time_s": prices.time_s[row], "low_s": prices.low_s[row], "high_s": prices.high_s[row],
            "roofline_s": prices.bound_s[row] if prices.bound_s[row] > NO_BOUND_S else None,
            "source": prices.source.texts()[row],
            "in_range": bool(prices.in_range[row]), "backward_from_forward": bool(prices.from_forward[row]),
            "nearest_data": nearest_device(pricer, ops, row),
        }
        for row, device in enumerate(ops.device.texts())
    ]  # fmt: skip
