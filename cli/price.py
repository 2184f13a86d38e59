"""`foretrace price`: what ops cost on devices, measured or never touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import InputError, UsageError
from .render.json import print_json
from .render.terminal import duration, print_table, say, table, warn

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.pricer import OpPricer, OpPrices

_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
_models_option = click.option(
    "--models", type=click.Path(path_type=Path), help="Folder of models (default: the shipped ones)."
)
_timings_option = click.option(
    "--calibrate",
    "timings",
    type=click.Path(path_type=Path),
    help="CSV or parquet of your own timings of these devices.",
)
_measured_option = click.option(
    "--measured", type=click.Path(path_type=Path), multiple=True, help="Measured rows to look up; a table or a folder."
)


SHIPPED_COLUMNS = (
    "source", "device", "op", "dtype", "direction", "framework", "kernel", "shape", "b", "m", "n", "k", "flops",
    "bytes", "time_s",
)  # fmt: skip


@click.group("price")
def command() -> None:
    """Price ops on devices: time, interval, and where the price comes from."""


@command.command("op")
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
@_timings_option
@_measured_option
@_models_option
@_json_option
def op_(**given: Any) -> None:
    """Price one op, such as: matmul --m 8192 --n 8192 --k 8192 --dtype bf16 --device h100-sxm"""
    as_json = given.pop("as_json")
    frame = _one_op(given)
    from ..datasets.ops.table import OpTable

    ops = OpTable.of_frame(frame, where="price op")
    pricer = _pricer(given["models"], given["measured"], given["timings"], ops, near=True)
    prices = pricer.price(ops)
    entries = _entries(ops, prices, pricer)
    if as_json:
        print_json({"op": given["op"], "dtype": given["dtype"], "prices": entries})
        return
    rows = [
        (
            entry["device"], duration(entry["time_s"]), f"{duration(entry['low_s'])} to {duration(entry['high_s'])}",
            duration(entry["roofline_s"]), f"{entry['roofline_s'] / entry['time_s']:.0%}", entry["source"],
            "" if entry["in_range"] else "outside", entry["nearest_data"],
        )
        for entry in sorted(entries, key=lambda entry: entry["time_s"])
    ]  # fmt: skip
    heads = ("device", "time", "80 % interval", "roofline", "of roofline", "source", "measured range", "nearest data")
    print_table(table(heads, rows))


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
        if dims.get(missing, shape.get(missing)) is None:
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

    return [
        {
            "device": device, "time_s": prices.time_s[row], "low_s": prices.low_s[row], "high_s": prices.high_s[row],
            "roofline_s": prices.bound_s[row], "source": prices.source.texts()[row],
            "in_range": bool(prices.in_range[row]), "backward_from_forward": bool(prices.from_forward[row]),
            "nearest_data": nearest_device(pricer, ops, row),
        }
        for row, device in enumerate(ops.device.texts())
    ]  # fmt: skip


@command.command("ops")
@click.argument("path", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--device", help="Price for this device instead of the table's own column.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Priced table, .parquet or .csv.")
@click.option("--score", is_flag=True, help="Errors by op, device and dtype against latency_ms.")
@_timings_option
@_measured_option
@_models_option
@_json_option
def ops_(
    path: Path, device: str | None, output: Path | None, score: bool, timings: Path | None, measured: tuple[Path, ...],
    models: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Price every row of TABLE; adds predicted_ms, low_ms, high_ms, source and in_range; a column source that the
    table has is kept as table_source. A latency_ms column is never read for the price, only by --score."""
    from ..datasets.ops.table import OpTable

    if output is not None and output.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--output {output}: expected a name that ends in .parquet or .csv")
    if output is None and not score:
        raise UsageError("price ops: say where to write the prices (-o FILE), or --score, or both")
    frame = read_table(path)
    if score and "latency_ms" not in frame.columns:
        raise UsageError(f"{path}: --score needs a latency_ms column")
    ops = OpTable.of_frame(frame, where=str(path), device=device)
    prices = _pricer(models, measured, timings, ops).price(ops)
    if output is not None:
        _write(output, frame, prices)
        say(f"{len(frame)} rows priced, saved in {output}")
    _warn_of_guesses(ops, prices)
    document: dict[str, Any] = {"rows": len(frame), "sources": _shares(prices)}
    if score:
        from ..predictor.cost.learned.scores import scores_of

        measured_s = OpTable.of_frame(frame, where=str(path), device=device, times=True).time_s
        assert measured_s is not None
        document["scores"] = scores_of(ops, prices, measured_s)
    if as_json:
        print_json(document)
    elif score:
        for title, rows in document["scores"].items():
            heads = (title, "rows", "mean %", "median %", "bias %", "time-weighted %", "in interval %")
            keys = ("rows", "mean", "median", "bias", "time_weighted", "coverage")
            lines = [(row["name"], *(row[key] if key == "rows" else f"{row[key]:.1f}" for key in keys)) for row in rows]
            print_table(table(heads, lines))


def read_table(path: Path) -> pd.DataFrame:
    """A parquet or CSV table. Raises `InputError` when it cannot be read."""
    import pandas as pd

    from ..datasets.store.files import reason

    if path.is_dir():
        files = sorted([*path.glob("*.parquet"), *path.glob("*.csv")])
        if not files:
            raise InputError(f"{path}: holds no .parquet and no .csv file")
        return pd.concat([read_table(file) for file in files], ignore_index=True)
    try:
        if path.suffix == ".parquet":
            from ..datasets.store.parquet import read_rows

            return read_rows(path).to_pandas()
        return pd.read_csv(path, low_memory=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such table") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the table: {reason(error)}") from error
    except (ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
        raise InputError(f"{path}: is no CSV table ({str(error).splitlines()[0]})") from error


def _pricer(
    models: Path | None, measured: tuple[Path, ...], timings: Path | None, ops: OpTable, *, near: bool = False
) -> OpPricer:
    """Models, the measured rows of the devices of `ops` (shipped ones and `measured`), and the user's own timings.

    `near`: all rows of `ops` have one shape; only measured rows that differ from it in one dim at most are kept.
    """
    import numpy as np
    import pandas as pd

    from ..datasets import catalog, shipped
    from ..datasets.ops.table import DIMS, OpTable
    from ..predictor.cost.learned.pricer import OpPricer

    pricer = OpPricer.load(models) if models is not None else OpPricer.load()
    keys = sorted({catalog.device(name).key for name in set(ops.device.texts())})
    known = shipped.ops(devices=keys, columns=SHIPPED_COLUMNS)
    known = known[known.op.isin(set(ops.op.texts()))]
    if measured:
        own = [read_table(path) for path in measured]
        own = [t.assign(time_s=t["latency_ms"] / 1e3) if "latency_ms" in t.columns else t for t in own]
        known = pd.concat([known, *own], ignore_index=True)
    where = str(measured[0]) if measured else "shipped measurements"
    if near:
        asked = {name: np.nan_to_num(getattr(ops, name)[:1], nan=-1.0)[0] for name in DIMS}
        alike = sum((known[name].fillna(-1) == asked[name]).astype(int) for name in DIMS)
        known = known[alike >= len(DIMS) - 1]
    if len(known):
        pricer.remember(OpTable.of_frame(known, where=where, times=True))
    if timings is not None:
        used = pricer.calibrate(OpTable.of_frame(read_table(timings), where=str(timings), times=True))
        for (device, family), count in used.items():
            say(f"calibrated {family} on {device} with {count} timings")
    return pricer


def _write(path: Path, frame: pd.DataFrame, prices: OpPrices) -> None:
    from ..datasets.errors import RunError
    from ..datasets.store.files import replacing

    # `source` of the tables is who measured; here it is where the price comes from.
    priced = frame.rename(columns={"source": "table_source"}).assign(
        predicted_ms=1e3 * prices.time_s, low_ms=1e3 * prices.low_s, high_ms=1e3 * prices.high_s,
        source=prices.source.texts(), in_range=prices.in_range,
    )  # fmt: skip
    with replacing(path, RunError) as temporary:
        if path.suffix == ".parquet":
            priced.to_parquet(temporary, index=False)
        else:
            priced.to_csv(temporary, index=False)


def _shares(prices: OpPrices) -> dict[str, int]:
    return {name: int(prices.source.are(name).sum()) for name in prices.source.names}


def _warn_of_guesses(ops: OpTable, prices: OpPrices) -> None:
    import numpy as np

    guessed = prices.source.are("analytic")
    if guessed.any():
        names = sorted({ops.op.names[code] for code in np.unique(ops.op.codes[guessed])})
        warn(f"{int(guessed.sum())} rows are of ops that no model knows, priced by base alone: {', '.join(names[:8])}")


@command.command("plan-timings")
@click.argument("path", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1000), help="Shapes of each family.")
@click.option("--device", help="Device to time on, where TABLE names none.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV to fill in (latency_ms left empty).")
@_json_option
def plan_timings(path: Path, count: int, device: str | None, output: Path | None, as_json: bool) -> None:
    """Name the shapes of a workload's op TABLE that are worth timing: the centres of its features.

    Fill in latency_ms and give the file to --calibrate.
    """
    import numpy as np

    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.calibration import columns, spread_out
    from ..predictor.cost.learned.families import NAMES, families_of
    from ..predictor.cost.learned.fit import shape_names
    from ..predictor.cost.learned.pricer import canonical
    from ..predictor.cost.learned.rows import Rows

    frame = read_table(path)
    ops, devices = canonical(OpTable.of_frame(frame, where=str(path), device=device))
    family = families_of(ops)
    chosen: list[int] = []
    for index in np.unique(family):
        rows = np.flatnonzero(family == index)
        features = Rows.of(int(index), ops.take(rows), devices).shape
        at = columns(shape_names(int(index)), NAMES[index])
        chosen += [int(row) for row in rows[spread_out(features[:, at].astype(np.float64), count)]]
    kept = ("op", "device", "dtype", "direction", "b", "m", "n", "k", "shape", "flops", "bytes")
    wanted = frame.iloc[chosen][[name for name in kept if name in frame.columns]].assign(latency_ms=None)
    if device is not None:
        wanted["device"] = device
    if output is not None:
        from ..datasets.store.files import write_text

        write_text(output, wanted.to_csv(index=False))
        say(f"{len(wanted)} shapes to time, saved in {output}; fill in latency_ms")
    if as_json:
        print_json({"rows": chosen, "timings": json_records(wanted)})
    elif output is None:
        click.echo(wanted.to_csv(index=False), nl=False)


def json_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain dicts, None for what is absent."""
    return [
        {name: None if value is None or value != value else value for name, value in record.items()}
        for record in frame.to_dict("records")
    ]
