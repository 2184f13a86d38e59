"""Host costs by hand arithmetic."""

import pandas as pd
import pytest
from foretrace.predictor.cost.host import HostCosts


def _rows(*rows: dict) -> pd.DataFrame:
    columns = ["kind", "workload", "phase", "ops", "views", "time_s", "spread", "source"]
    return pd.DataFrame(list(rows), columns=columns)


def test_training_rows_lose_the_launch_that_prices_already_hold():
    host = HostCosts.from_rows(
        _rows({"kind": "training", "phase": "forward", "time_s": 9e-6}, {"kind": "ddp_step", "time_s": 1e-3}),
        floor_s=4e-6,
    )
    assert host.op_s("forward") == pytest.approx(5e-6)
    assert host.wrapper("ddp_step") == pytest.approx(1e-3)
    assert host.missing(("ddp_step", "fsdp_unit")) == ("fsdp_unit",)
