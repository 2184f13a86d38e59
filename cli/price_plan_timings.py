"""`foretrace price plan-timings`: the shapes of a workload that are worth timing on a new device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .op_pricing import json_option, read_table
from .render.json import print_json
from .render.terminal import say

if TYPE_CHECKING:
    import pandas as pd


@click.command("plan-timings")
@click.argument("path", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1000), help="Shapes of each family.")
@click.option("--device", help="Device to time on, where TABLE names none.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV to fill in (latency_ms left empty).")
@json_option
def command(path: Path, count: int, device: str | None, output: Path | None, as_json: bool) -> None:
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
