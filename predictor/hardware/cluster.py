"""Cluster: the machines a plan is placed on. For now: one kind of host, measured by `foretrace profile machine`.

A rank's device is `threads` of the host's cores; ranks of one host share its cores and its memory bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ...datasets.errors import InputError, UsageError
from ...datasets.machine import Machine
from .device import Device


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal hosts described by one device file."""

    machine: Machine
    nodes: int = 1

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """`this`, or the path of a device file written by `foretrace profile machine`.

        Raises `InputError` when the file is absent or unreadable, `UsageError` for several nodes, for which no links
        were measured.
        """
        name, colon, nodes = text.rpartition(":")
        if colon and nodes.isdigit() and name:
            if int(nodes) != 1:
                raise UsageError(
                    f"--cluster {text}: {nodes} nodes were asked for, but no link between hosts was measured; "
                    "use one node"
                )
            text = name
        if text == "this":
            return cls(Machine.this())
        if not Path(text).is_file():
            raise InputError(
                f"--cluster {text}: no such device file; name 'this', or one that foretrace profile machine wrote"
            )
        return cls(Machine.load(Path(text)))

    @property
    def cores(self) -> int:
        """Usable cores of one host."""
        return int(self.machine.facts["usable_cores"])

    @property
    def memory_bytes(self) -> int | None:
        """Memory of one host; None when it could not be read."""
        value = self.machine.facts.get("memory_bytes")
        return int(value) if value else None

    def device(self, threads: int) -> Device:
        """What a rank with this many threads has at best."""
        return _device(self.machine, threads)


_DEVICES: dict[tuple[str, int], Device] = {}


def _device(machine: Machine, threads: int) -> Device:
    key = (machine.content_hash, threads)
    if key not in _DEVICES:
        _DEVICES[key] = _build(machine, threads)
    return _DEVICES[key]


def _build(machine: Machine, threads: int) -> Device:
    ops = machine.ops
    alone = ops[(ops.processes == 1) & ops.time_s.notna() & (ops.time_s > 0)]
    known = sorted({int(count) for count in alone.threads.dropna()})
    if not known:
        raise InputError(f"device file {machine.name}: holds no op row measured with one process; measure it again")
    nearest = min(known, key=lambda count: (abs(count - threads), count))
    rows = alone[alone.threads == nearest]
    gemms = rows[rows.op.isin(["matmul", "linear", "bmm"]) & (rows.flops > 0)]
    flops_per_s = {
        dtype: float(group) for dtype, group in (gemms.flops / gemms.time_s).groupby(gemms.dtype).quantile(0.95).items()
    }
    if "fp32" not in flops_per_s:
        raise InputError(f"device file {machine.name}: holds no fp32 GEMM row; measure it again")
    vector = rows[rows.op.isin(["elementwise.add", "elementwise.mul", "copy.clone", "copy.copy"])]
    if not len(vector):
        raise InputError(f"device file {machine.name}: holds no add, mul, clone or copy row; measure it again")
    total = vector.bytes_read + vector.bytes_written
    rate = total / vector.time_s
    cache_bytes = float(machine.facts.get("caches_bytes", {}).get("L2") or 1 << 20)
    memory_rate = rate[total >= 32 * (1 << 20)]
    cache_rate = rate[(total >= 1 << 17) & (total <= 1 << 20)]
    bytes_per_s = float(memory_rate.median()) if len(memory_rate) else float(rate.max())
    small = rows[(rows.bytes_read + rows.bytes_written) < 4096]
    return Device(
        name=machine.name,
        kind="cpu",
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        cache_bytes_per_s=max(bytes_per_s, float(cache_rate.median()) if len(cache_rate) else bytes_per_s),
        cache_bytes=cache_bytes,
        launch_s=float(small.time_s.median()) if len(small) else float(rows.time_s.min()),
        threads=threads,
        facts={"measured_at_threads": nearest},
    )


def context_rows(ops: pd.DataFrame, threads: int, processes: int) -> tuple[int, int]:
    """The measured context nearest to the one asked for, as (threads, processes)."""
    contexts = {
        (int(t), int(p)) for t, p in ops[["threads", "processes"]].dropna().drop_duplicates().itertuples(index=False)
    }
    return min(contexts, key=lambda c: (abs(c[1] - processes), abs(c[0] - threads), c))
