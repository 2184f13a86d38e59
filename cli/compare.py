"""`foretrace compare A B`: a prediction beside a run, two runs, or two predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from ..datasets.errors import Regression, UsageError
from .render import terminal
from .render.json import print_json
from .side import Side, read_side

TOP_OPS = 12


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--fail-on", "limit_text", metavar="PERCENT", help="Exit 5 when the steps differ by more, e.g. 5%.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(a: Path, b: Path, limit_text: str | None, as_json: bool) -> None:
    """Set A and B side by side: each a run folder, or the JSON that `foretrace predict --json` printed.

    With --fail-on: between two runs, B may not be slower than A by more than the limit, noise apart; between a
    prediction and a run, the prediction may not be off the run by more, either way; between two predictions, B may not
    differ from A by more, either way.
    """
    limit = _limit(limit_text)
    left, right = read_side(a), read_side(b)
    facts = compare(left, right)
    verdict = None if limit is None else judge(facts, limit)
    if as_json:
        print_json({**facts, "fail_on": verdict})
    else:
        _print(left, right, facts)
    for problem in (*left.problems, *right.problems):
        terminal.warn(problem)
    if verdict is not None:
        text = _sentence(verdict)
        if verdict["failed"]:
            raise Regression(f"comparing {left.label} with {right.label}: {text}")
        (terminal.warn if verdict["within_noise"] else terminal.say)(text)


def compare(a: Side, b: Side) -> dict[str, Any]:
    """The document that --json prints. Changes are of B relative to A; an error is relative to what was measured."""
    predicted, measured = (a, b) if a.kind == "prediction" else (b, a)
    error = inside = None
    if predicted.interval_s is not None and measured.kind == "profile":
        error = predicted.step_time_s / measured.step_time_s - 1.0
        inside = predicted.interval_s[0] <= measured.step_time_s <= predicted.interval_s[1]
    return {
        "command": "compare",
        "a": _facts(a),
        "b": _facts(b),
        "step_change": b.step_time_s / a.step_time_s - 1.0,
        # Twice the standard error of the difference of two medians: 95 % of pairs of equal runs lie within.
        "noise": 2 * math.hypot(a.median_error, b.median_error),
        "prediction_error": error,
        "measured_inside_interval": inside,
        "parts": [
            {"part": name, "a_s": a.parts_s.get(name), "b_s": b.parts_s.get(name)}
            for name in dict.fromkeys([*a.parts_s, *b.parts_s])
        ],
        "ops": _ops(a, b),
        "ops_only_in_a": len(set(a.ops_s) - set(b.ops_s)),
        "ops_only_in_b": len(set(b.ops_s) - set(a.ops_s)),
    }


def _ops(a: Side, b: Side) -> list[dict[str, Any]]:
    """Ops that both sides have, largest difference in seconds per step first."""
    rows = []
    for key in set(a.ops_s) & set(b.ops_s):
        (a_s, a_spread_s), (b_s, b_spread_s) = a.ops_s[key], b.ops_s[key]
        name, phase, dims, dtype = key
        rows.append(
            {
                "op": name, "phase": phase, "dims": dims, "dtype": dtype, "a_s": a_s, "b_s": b_s,
                "within_spread": abs(b_s - a_s) <= a_spread_s + b_spread_s,
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: (-abs(row["b_s"] - row["a_s"]), row["op"], row["phase"], row["dims"]))


def judge(facts: dict[str, Any], limit: float) -> dict[str, Any]:
    """Whether the comparison crosses `limit` (a share: 0.05 is 5 %), and by which rule."""
    error, change, noise = facts["prediction_error"], facts["step_change"], facts["noise"]
    within_noise = False
    if error is not None:
        rule, found = "error of the prediction against the run, either way", abs(error)
    elif facts["a"]["kind"] == "profile":
        rule, found = "slow-down of run B against run A, and more than their noise", change
        within_noise = limit < change <= noise
    else:
        rule, found = "difference of prediction B from prediction A, either way", abs(change)
    return {
        "limit": limit,
        "rule": rule,
        "found": error if error is not None else change,
        "noise": noise,
        "within_noise": within_noise,
        "failed": found > limit and not within_noise,
    }


def _sentence(verdict: dict[str, Any]) -> str:
    """`--fail-on 5%: +10.0% (slow-down of ...): over the limit`."""
    found = f"{verdict['found']:+.1%} ({verdict['rule']})"
    if verdict["failed"]:
        end = "over the limit"
    elif verdict["within_noise"]:
        end = f"over the limit but within the noise of ±{verdict['noise']:.1%}: run more steps to tell"
    else:
        end = "within the limit"
    return f"--fail-on {verdict['limit'] * 100:.4g}%: {found}: {end}"


def _facts(side: Side) -> dict[str, Any]:
    names = ("label", "kind", "step_time_s", "interval_s", "spread", "steps", "peak_memory_bytes")
    return {name: getattr(side, name) for name in names}


def _print(a: Side, b: Side, facts: dict[str, Any]) -> None:
    click.echo(f"A  {a.label} ({a.kind})\nB  {b.label} ({b.kind})")
    click.echo(f"{_verdict(facts)}\n")
    rows = [
        ("step", terminal.duration(a.step_time_s), terminal.duration(b.step_time_s), f"{facts['step_change']:+.1%}"),
        ("interval or spread", _width(a), _width(b), ""),
        (
            "peak memory", terminal.size(a.peak_memory_bytes), terminal.size(b.peak_memory_bytes),
            _change(a.peak_memory_bytes, b.peak_memory_bytes),
        ),
    ]  # fmt: skip
    for part in facts["parts"]:
        a_s, b_s = part["a_s"], part["b_s"]
        if a_s or b_s:
            rows.append((part["part"], terminal.duration(a_s), terminal.duration(b_s), _change(a_s, b_s)))
    terminal.print_table(terminal.table(("", "A", "B", "B to A"), rows))
    if facts["prediction_error"] is not None and facts["parts"]:
        click.echo("\nParts: of the prediction on the critical path; of the run in its recorded steps, mean rank.")
    if facts["ops"]:
        click.echo("\nLargest differences by op, seconds per step of one rank of each stage:\n")
        ops = [
            (
                op["op"], op["phase"], op["dims"], op["dtype"], terminal.duration(op["a_s"]),
                terminal.duration(op["b_s"]), _change(op["a_s"], op["b_s"]),
                "within spread" if op["within_spread"] else "",
            )
            for op in facts["ops"][:TOP_OPS]
        ]  # fmt: skip
        terminal.print_table(terminal.table(("op", "phase", "dims", "dtype", "A", "B", "B to A", ""), ops))
        only = [
            f"{facts[f'ops_only_in_{side}']} only in {side.upper()}" for side in "ab" if facts[f"ops_only_in_{side}"]
        ]
        click.echo(f"\n{len(facts['ops'])} ops in both" + "".join(f", {text}" for text in only))
    elif not (a.ops_s and b.ops_s):
        terminal.say("no ops to compare: one side has no op rows")


def _verdict(facts: dict[str, Any]) -> str:
    error, change, noise = facts["prediction_error"], facts["step_change"], facts["noise"]
    if error is not None:
        where = "inside" if facts["measured_inside_interval"] else "OUTSIDE"
        return f"The prediction is {error:+.1%} off the measured step, which lies {where} its 80 % interval."
    if facts["a"]["kind"] == "prediction":
        return f"B's step is predicted {change:+.1%} against A's."
    if noise and abs(change) <= noise:
        return f"B's step is {change:+.1%} against A's: within the noise of ±{noise:.1%}."
    return f"B's step is {change:+.1%} against A's" + (f", noise ±{noise:.1%}." if noise else ".")


def _width(side: Side) -> str:
    if side.interval_s is not None:
        return " to ".join(terminal.duration(bound) for bound in side.interval_s)
    return "-" if side.spread is None else f"±{side.spread:.1%} of {side.steps}"


def _change(a: float | None, b: float | None) -> str:
    return f"{b / a - 1:+.1%}" if a and b is not None else "-"


def _limit(text: str | None) -> float | None:
    if text is None:
        return None
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise UsageError(f"--fail-on {text!r}: cannot read it; write a percentage such as 5%")
    return value
