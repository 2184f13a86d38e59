"""`foretrace price ops`: a table of ops with predicted times, and how far off they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import UsageError
from .op_pricing import json_option, measured_option, models_option, pricer_for, read_table, timings_option
from .render.json import print_json
from .render.terminal import print_table, say, table, warn

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.pricer import OpPrices


@click.command("ops")
@click.argument("path", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--device", help="Price for this device instead of the table's own column.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Priced table, .parquet or .csv.")
@click.option("--score", is_flag=True, help="Errors by op, device and dtype against latency_ms.")
@timings_option
@measured_option
@models_option
@json_option
def command(
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
    prices = pricer_for(models, measured, timings, ops).price(ops)
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
