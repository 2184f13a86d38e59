"""`python -m benchmarks.ops`: writes docs/accuracy-ops.md from scratch. Needs xgboost and the raw tables."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from . import figures, sources
from .leave_out import Left, by_device
from .speed import speed

PAGE = Path(__file__).parents[2] / "docs" / "accuracy-ops.md"

HEAD = """# Accuracy of op prices on accelerators

Written by `python -m benchmarks.ops`; nothing here is typed by hand. Errors are |predicted / measured - 1| in per cent.
Blind prices come from an ensemble that saw no row of the device (LODO), or of its family (devices of one die). With n
timings, the n shapes are chosen by `price plan-timings`, never scored, and figures are means over three choices.
Errors are averaged within a group (device, source, framework), then a device, then over devices.

Choices for the blind and calibrated figures were made on validation devices ({validation}); unless a
line says otherwise its figure is over the other devices. Not clean: interpolation along lines, the size of the known
trees and the reading of trace rows were chosen after errors on the part `score` of all devices had been seen, so the
lines of held-out shapes are optimistic; the three speed lines were measured apart from the rest. Of the base, the power
cap of fp32 was written with one T4's fp32 efficiency known, and the classes of attention kernels (which parts run
asynchronous matrix instructions) are known facts of the parts.
Shipped models are fitted on the part `fit` of the shipped rows; NeuSight's P4 contradicts itself (3x between its files)
and is neither fitted nor scored.

## Targets

| rows | target | ours | fitted on |
|---|---|---|---|
"""


def main() -> int:
    """Run every figure and write the page."""
    if not sources.FOLDER.exists():
        print(f"benchmarks.ops: {sources.FOLDER} is not there; the raw tables are needed", file=sys.stderr)
        return 1
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {what}", file=sys.stderr, flush=True)

    quick = speed()
    say("speed")
    lines, found = [], {}
    for part in (figures.half_gemms, figures.full_gemms, figures.attention):
        own, left = part(say)
        lines += own
        found |= left
    lines += figures.known_shapes(say)
    lines += figures.neusight(say)
    lines += figures.intervals(found)
    lines += quick
    text = HEAD.format(validation=", ".join(sources.VALIDATION))
    text += "".join(f"| {line.rows} | {line.target} | {line.ours} | {line.fitted_on} |\n" for line in lines)
    for title, left in found.items():
        text += _devices(title, left)
    PAGE.write_text(text, encoding="utf-8")
    say(f"saved in {PAGE}")
    return 0


def _devices(title: str, left: Left) -> str:
    """A table by device: mean / median of every method."""
    methods = list(left.said)
    scores = {method: by_device(left, method) for method in methods}
    heads = [method if not method.isdigit() else f"{method} timings" for method in methods]
    text = f"\n## {title}\n\nMean / median by device.\n\n| device | {' | '.join(heads)} |\n"
    text += "|---" * (1 + len(methods)) + "|\n"
    for name in scores["blind"]:
        mark = " (validation)" if name in sources.VALIDATION else ""
        cells = [f"{scores[m][name][0]:.1f} / {scores[m][name][1]:.1f}" if name in scores[m] else "" for m in methods]
        text += f"| {name}{mark} | {' | '.join(cells)} |\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
