"""How fast ops are priced: a table of distinct rows, one op, import and load."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pandas as pd
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.pricer import OpPricer

from .figures import Figure

ROWS = 100_000
_LOAD = (
    "import time; begun = time.perf_counter()\n"
    "from foretrace.predictor.cost.learned.pricer import OpPricer\n"
    "OpPricer.load()\n"
    "import sys; print(time.perf_counter() - begun, *sorted({'torch', 'sklearn', 'xgboost'} & set(sys.modules)))"
)


def speed() -> list[Figure]:
    """Rows a second on two threads and on one, milliseconds of one op, seconds of import and load."""
    random = np.random.default_rng(0)
    dims = {name: random.integers(1, 16_384, ROWS) for name in "mnk"}
    frame = pd.DataFrame(
        {"op": "matmul", "device": "A100-SXM4-80GB", "dtype": "bf16", "direction": "fwd", "b": 1, **dims}
    )
    assert not frame.duplicated().any()
    table = OpTable.of_frame(frame, where="speed")
    pricer = OpPricer.load()
    rates = {}
    for threads in (2, 1):
        pricer.threads = threads
        pricer.price(table)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            pricer.price(table)
            times.append(time.perf_counter() - begun)
        rates[threads] = (ROWS / min(times), ROWS / float(np.median(times)))
    one = table.take(np.array([0]))
    each = []
    for _ in range(200):
        begun = time.perf_counter()
        pricer.price(one)
        each.append(time.perf_counter() - begun)
    loads = [
        subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    heavy = sorted({name for load in loads for name in load[1:]})
    seconds = sorted(float(load[0]) for load in loads)
    return [
        Figure(f"{ROWS // 1000} k distinct GEMM rows, two threads / one", ">= 500 k rows/s on 2 cores",
               f"{rates[2][0] / 1e3:.0f} k / {rates[1][0] / 1e3:.0f} k rows/s (fastest of 5; median "
               f"{rates[2][1] / 1e3:.0f} k / {rates[1][1] / 1e3:.0f} k)", "nothing; learned prices, no lookup"),
        Figure("one op, warm", "<= 1 ms", f"{1e3 * np.median(each):.2f} ms (median of 200)", "nothing"),
        Figure("import and model load", "<= 1.5 s without torch, scikit-learn",
               f"{seconds[2]:.2f} s (median of 5 processes; heavy libraries imported: {', '.join(heavy) or 'none'})",
               "nothing"),
    ]  # fmt: skip
