"""Peak rates of a machine, read off its op rows."""

from __future__ import annotations

import pandas as pd


def peaks(ops: pd.DataFrame) -> dict[str, float | None]:
    """Best measured rates: GEMM FLOP/s by dtype and threads, and bytes/s of copies in and out of cache."""
    found: dict[str, float | None] = {}
    for (threads, processes), rows in ops.groupby(["threads", "processes"]):
        where = f"{threads}_thread{'s' if threads > 1 else ''}" + (f"_{processes}_processes" if processes > 1 else "")
        gemms = rows[rows.op.isin(["linear", "matmul"])]
        for dtype, some in gemms.groupby("dtype"):
            found[f"{dtype}_flops_per_s_{where}"] = float((some.flops / some.time_s).max())
        # Into memory that is there already: a large clone also pays for the pages of its output.
        copies = rows[(rows.op == "copy.copy") & (rows.dtype == "fp32")]
        total = copies.bytes_read + copies.bytes_written
        for label, chosen in (("cache", (total > 1 << 16) & (total <= 1 << 20)), ("memory", total >= 1 << 25)):
            if chosen.any():
                found[f"copy_{label}_bytes_per_s_{where}"] = float((total / copies.time_s)[chosen].median())
    return found
