"""What the commands that price ops share: options, reading tables, and the pricer with what it looks up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..datasets.errors import InputError
from .render.terminal import say

if TYPE_CHECKING:
    import pandas as pd

    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.pricer import OpPricer

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
models_option = click.option(
    "--models", type=click.Path(path_type=Path), help="Folder of models (default: the shipped ones)."
)
timings_option = click.option(
    "--calibrate",
    "timings",
    type=click.Path(path_type=Path),
    help="CSV or parquet of your own timings of these devices.",
)
measured_option = click.option(
    "--measured", type=click.Path(path_type=Path), multiple=True, help="Measured rows to look up; a table or a folder."
)

SHIPPED_COLUMNS = (
    "source", "device", "op", "dtype", "direction", "framework", "kernel", "shape", "b", "m", "n", "k", "flops",
    "bytes", "time_s",
)  # fmt: skip


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


def pricer_for(
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
