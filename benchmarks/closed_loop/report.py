"""The report: docs/accuracy-cpu.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
from foretrace.datasets.machine import Machine
from foretrace.datasets.store.files import write_text

from .score import Row, ranking, summary

TARGETS = {
    "cold": "median <= 12 %",
    "calibrated": "median <= 8 %, 90th percentile <= 18 %, none over 35 %, bias within ±4 %",
}


def write_report(path: Path, rows: Sequence[Row], machine: Machine, taken_s: float | None) -> None:
    """Write the tables; every figure in them is computed here from what was measured."""
    facts = machine.facts
    lines = [
        "# Accuracy on a CPU: predicted before it was measured",
        "",
        f"Written by `make bench-closed-loop` on {date.today()} ({facts.get('cpu_model')}, {facts.get('usable_cores')} cores, "
        f"torch {facts.get('torch')}; device file `{machine.content_hash}`, {'quick' if machine.quick else 'full'} sweep).",
        *([f"Measuring and scoring took {taken_s / 60:.0f} minutes."] if taken_s else []),
        "",
        "*Cold* knows the device file only. *Calibrated* also knows one single-process run of the same model at another",
        "batch. A case's own run is never used. Measured is the median step over blocks whose probes (one GEMM, one copy,",
        "before and after) are within 5 % of the best tenth of all probes; *noisy* cases had no such block after three",
        "repeats, are marked by that rule only and keep their three quietest. Errors are (predicted - measured) / measured.",
        "",
        "## Summary",
        "",
        "| | cases | median | mean | 90th percentile | largest | bias (median signed) | 80 % interval covers | target |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    quiet = [row for row in rows if not row.measured.noisy]
    for column in ("cold", "calibrated"):
        for name, some in (("all", rows), ("not noisy", quiet)):
            if some:
                s = summary(some, column)
                lines.append(
                    f"| {column}, {name} | {len(some)} | {s['median']:.1%} | {s['mean']:.1%} | {s['p90']:.1%} | "
                    f"{s['largest']:.1%} | {s['bias']:+.1%} | {s['coverage']:.0%} | {TARGETS[column] if name == 'all' else ''} |"
                )
    memory = np.abs([row.memory_error for row in rows])
    lines += [
        "",
        f"Peak tensor memory of the fullest rank (live tensor storages; workspaces of kernels and gloo are not tensors): "
        f"median error {np.median(memory):.1%}, largest {memory.max():.1%} (target: median <= 10 %).",
        "",
    ]
    for column in ("cold", "calibrated"):
        found = ranking(rows, column)
        share = found["right"] / found["pairs"] if found["pairs"] else 1.0
        lines.append(
            f"Ranking, {column}: {found['right']} of {found['pairs']} pairs of plans that differ by more than twice the "
            f"noise are ordered right ({share:.1%}, target 95 %); mean regret {found['mean_regret']:.1%} (target 3 %)."
        )
    lines += [
        "",
        "## Where the error sits",
        "",
        "| group | cases | cold median | cold bias | calibrated median | calibrated bias |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in dict.fromkeys(row.group for row in rows):
        some = [row for row in rows if row.group == name]
        cold, calibrated = summary(some, "cold"), summary(some, "calibrated")
        lines.append(
            f"| {name} | {len(some)} | {cold['median']:.1%} | {cold['bias']:+.1%} | {calibrated['median']:.1%} | {calibrated['bias']:+.1%} |"
        )
    lines += [
        "",
        "| plan kind | cases | cold median | cold bias | calibrated median | calibrated bias |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind in dict.fromkeys(_kind(row.plan) for row in rows):
        some = [row for row in rows if _kind(row.plan) == kind]
        cold, calibrated = summary(some, "cold"), summary(some, "calibrated")
        lines.append(
            f"| {kind} | {len(some)} | {cold['median']:.1%} | {cold['bias']:+.1%} | {calibrated['median']:.1%} | {calibrated['bias']:+.1%} |"
        )
    lines += [
        "",
        "## Every case",
        "",
        "| group | plan | measured ms | ± | cold ms | error | calibrated ms | 80 % interval | error | inside | memory MiB | error | |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    for row in rows:
        m, c, k = row.measured, row.cold, row.calibrated
        lines.append(
            f"| {row.group} | {row.plan} | {m.step_s * 1e3:.1f} | {m.noise:.1%} | {c.step_time_s * 1e3:.1f} | {row.error('cold'):+.1%} | "
            f"{k.step_time_s * 1e3:.1f} | {k.low_s * 1e3:.0f} to {k.high_s * 1e3:.0f} | {row.error('calibrated'):+.1%} | "
            f"{'yes' if row.inside('calibrated') else 'no'} | {m.peak_bytes / 2**20:.0f} | {row.memory_error:+.1%} | {'noisy' if m.noisy else ''} |"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(lines) + "\n")


def _kind(plan: str) -> str:
    for mark in ("precision=bf16", "pp=2", "tp=2", "fsdp=2", "dp=2", "recompute=full", "micro_batches", "threads=1"):
        if mark in plan:
            return mark
    return "single"
