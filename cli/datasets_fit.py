"""`foretrace datasets fit`: train the learned op prices from measured rows."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .render.terminal import say


@click.command("fit")
@click.argument("tables", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder of the models (default: the shipped ones)."
)
@click.option("--only", multiple=True, help="Families to train; the others stay as they are.")
@click.option("--seed", default=0, show_default=True, type=int)
def command(tables: tuple[Path, ...], output: Path | None, only: tuple[str, ...], seed: int) -> None:
    """Train the learned prices of ops from TABLES of measured rows (parquet, CSV or folders; default: the shipped rows
    that may be fitted to).

    Needs xgboost (the extra "fit"). The same rows and seed give the same models.
    """
    import numpy as np
    import pandas as pd

    from ..datasets import shipped
    from ..datasets.ops.table import OpTable
    from ..predictor.cost.learned.families import NAMES, families_of
    from ..predictor.cost.learned.fit import Settings, believable, fit_family
    from ..predictor.cost.learned.pricer import MODELS, canonical
    from .op_pricing import read_table

    if unknown := sorted(set(only) - set(NAMES)):
        raise click.BadParameter(f"{', '.join(unknown)}: known families are {', '.join(NAMES)}", param_hint="--only")
    folder = output or MODELS
    begun = time.monotonic()
    frame = pd.concat([read_table(path) for path in tables], ignore_index=True) if tables else shipped.ops()
    where = str(tables[0]) if tables else "shipped measurements"
    table, _ = canonical(OpTable.of_frame(frame, where=where, times=True))
    del frame
    table = table.take(np.flatnonzero(believable(table)))
    say(f"{len(table)} rows read, {time.monotonic() - begun:.0f} s")
    family = families_of(table)
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(NAMES):
        mask = np.flatnonzero(family == index)
        if len(mask) < 100 or (only and name not in only):
            continue
        model = fit_family(index, table.take(mask), Settings(seed=seed), say=say)
        model.save(folder / f"{name}.npz")
        say(f"{name}: saved in {folder / name}.npz, {time.monotonic() - begun:.0f} s since the start")
