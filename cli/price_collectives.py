"""`foretrace price collectives`: a table of collectives with predicted times, and how far off they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import InputError, SchemaError, UsageError
from .render.terminal import print_table, say, table, warn

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")
MEASURED = ("time_us", "time_s", "algbw_gbps", "busbw_gbps")
"""Columns that hold the answer; the price never sees them."""


@click.command("collectives")
@click.argument("path", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--device", help="Price on this device, whatever the table says.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where the priced table goes (.csv, .parquet).")
@click.option(
    "--calibrate", type=click.Path(path_type=Path),
    help="Your own timings: a table with time_us; 4 or 8 sizes of one collective help most.",
)  # fmt: skip
@click.option("--score", is_flag=True, help="Print errors by collective, device and ranks; needs time_us.")
def command(path: Path, device: str | None, output: Path | None, calibrate: Path | None, score: bool) -> None:
    """Price a TABLE of collectives (CSV or parquet: device, collective, ranks, bytes; also interconnect, backend,
    nodes, gpus_per_node, dtype, notes where known).

    Adds predicted_us, low_us and high_us (80 %), source (measured, learned or analytic; the table's own column
    of that name becomes source_of_rows) and in_range. A column time_us is read for --score only; rows that foretrace
    ships are looked up, so their errors tell of the look-up, not of accuracy.
    """
    import numpy as np

    from ..predictor.cost.collectives.prices import CollectivePrices
    from ..predictor.cost.collectives.table import faults_of

    if output is None and not score:
        raise UsageError("nothing to do with the prices: give -o OUT, --score, or both")
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"-o {output}: cannot tell the format; name a file that ends in {' or '.join(SUFFIXES)}")
    rows = _read(path)
    if score and "time_us" not in rows.columns:
        raise UsageError(f"{path}: --score compares with a column time_us, and there is none")
    asked = _asked(rows, device, path)
    faults = faults_of(asked)
    if faults:
        row, why = next(iter(faults.items()))
        text = f"{path}: row {row}: {why}" + (f" ({len(faults)} such rows)" if len(faults) > 1 else "")
        if len(faults) == len(rows):
            raise SchemaError(text)
        warn(f"{text}; they get no price")
    sound = np.setdiff1d(np.arange(len(rows)), list(faults))
    prices = CollectivePrices.shipped()
    if calibrate is not None:
        prices = prices.with_measured(_timings(calibrate, device))
    found = prices.price(asked.iloc[sound]).reindex(rows.index)
    priced = rows.rename(columns={"source": "source_of_rows"})
    for name, seconds in (("predicted_us", "time_s"), ("low_us", "low_s"), ("high_us", "high_s")):
        priced[name] = 1e6 * found[seconds]
    priced["source"], priced["in_range"] = found["source"], found["in_range"]
    if output is not None:
        _write(priced, output)
        say(f"wrote {output} ({len(priced)} rows)")
    if score:
        _print_score(priced, asked)


def _read(path: Path) -> pd.DataFrame:
    """A CSV or parquet file as a frame. Raises `InputError` when it cannot be read."""
    import pandas as pd

    from ..datasets.store.parquet import read_rows

    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: cannot tell the format; name a file that ends in {' or '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file" if not path.exists() else f"{path}: is not a file")
    if path.suffix.lower() == ".parquet":
        return read_rows(path).to_pandas().reset_index(drop=True)
    try:
        return pd.read_csv(path, low_memory=False)
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no CSV table: {str(error).strip().splitlines()[0]}") from error


def _asked(rows: pd.DataFrame, device: str | None, path: Path) -> pd.DataFrame:
    """What the price may see: the rows without any measured column, on the device that was named."""
    asked = rows.drop(columns=[name for name in MEASURED if name in rows.columns])
    if device is not None:
        from ..datasets import catalog

        key = catalog.device(device).key
        if "interconnect" in asked.columns and "device" in asked.columns:
            # The words describe the wires of the table's device, not of another one.
            asked["interconnect"] = asked["interconnect"].where(asked["device"] == key, "")
        asked["device"] = key
    needed = ("device", "collective", "ranks", "bytes")
    if missing := [name for name in needed if name not in asked.columns]:
        hint = "; or name one with --device" if missing[0] == "device" else ""
        raise SchemaError(
            f"{path}: column {missing[0]!r} is missing; a table of collectives has {', '.join(needed)}{hint}"
        )
    return asked


def _timings(path: Path, device: str | None) -> pd.DataFrame:
    """The user's own timings, in seconds."""
    import pandas as pd

    from ..predictor.cost.collectives.table import faults_of

    rows = _read(path)
    if "time_us" not in rows.columns:
        raise SchemaError(f"{path}: column 'time_us' is missing; timings to calibrate with have it")
    kept = _asked(rows, device, path)
    time_us = pd.to_numeric(rows["time_us"], errors="coerce")
    if not (time_us > 0).all():
        row = int((~(time_us > 0)).to_numpy().argmax())
        raise SchemaError(
            f"{path}: row {row}, column 'time_us': {rows['time_us'].iloc[row]!r} is no time; give microseconds"
        )
    if faults := faults_of(kept):
        row, why = next(iter(faults.items()))
        raise SchemaError(f"{path}: row {row}: {why}")
    kept["time_s"] = time_us / 1e6
    return kept


def _write(rows: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa

    from ..datasets.store.files import replacing
    from ..datasets.store.parquet import write_rows

    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            rows.to_csv(temporary, index=False)
        else:
            write_rows(temporary, pa.Table.from_pandas(rows, preserve_index=False), kind="priced collectives")


def _print_score(priced: pd.DataFrame, asked: pd.DataFrame) -> None:
    """Errors in per cent, worst group last; rows without a time are not scored."""
    import numpy as np
    import pandas as pd

    measured = pd.to_numeric(priced["time_us"], errors="coerce")
    known = (measured > 0).to_numpy()
    ratio = (priced["predicted_us"] / measured)[known]
    scored = pd.DataFrame({
        "error": 100 * (ratio - 1).abs(), "bias": 100 * np.log(ratio), "time_us": measured[known],
        "inside": ((measured >= priced["low_us"]) & (measured <= priced["high_us"]))[known],
        "source": priced["source"][known],
        **{name: asked[name][known].astype(str) for name in ("collective", "device", "ranks")},
    })  # fmt: skip
    if not len(scored):
        say("no row has a time_us above 0; nothing to score")
        return
    columns = ("", "rows", "mean %", "median %", "bias %", "time-weighted %", "in 80 % interval")
    for name in ("collective", "device", "ranks", "source"):
        lines = [_line(key, group) for key, group in scored.groupby(name, sort=True)]
        print_table(table((f"by {name}", *columns[1:]), [*lines, _line("all", scored)]))


def _line(name: Any, group: pd.DataFrame) -> tuple[Any, ...]:
    weighted = float((group["error"] * group["time_us"]).sum() / group["time_us"].sum())
    return (
        str(name), len(group), f"{group['error'].mean():.1f}", f"{group['error'].median():.1f}",
        f"{group['bias'].mean():+.1f}", f"{weighted:.1f}", f"{group['inside'].mean():.2f}",
    )  # fmt: skip
