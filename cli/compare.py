"""`foretrace compare A B`: a prediction beside a run, two runs, or two predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..datasets.errors import InputError, Regression, UsageError
from .render import terminal
from .render.json import print_json

if TYPE_CHECKING:
    from ..datasets.profile import Profile
    from ..predictor import Prediction

TOP_OPS = 12

OpKey = tuple[str, str, str, str]
"""(op name, phase, dims, dtype)"""


@dataclass(frozen=True)
class Side:
    """What a comparison needs of a prediction or of a run."""

    label: str
    kind: str
    """`prediction` or `profile`."""
    step_time_s: float
    interval_s: tuple[float, float] | None
    """80 % interval; None for a run."""
    spread: float
    """Half the interquartile range of a run's steps over their median; 0 for a prediction."""
    peak_memory_bytes: int | None
    parts_s: dict[str, float] = field(default_factory=dict)
    ops_s: dict[OpKey, float] = field(default_factory=dict)
    """Seconds per step of one rank of each class, calls included."""


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--fail-on", "limit_text", metavar="PERCENT", help="Exit 5 when the steps differ by more, e.g. 5%.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(a: Path, b: Path, limit_text: str | None, as_json: bool) -> None:
    """Set A and B side by side: each a run folder, or the JSON that `foretrace predict --json` printed.

    With --fail-on: between two runs, B may not be slower than A by more than the limit beyond the noise of both; with
    a prediction, the two steps may not differ by more than the limit either way.
    """
    limit = _limit(limit_text)
    left, right = read_side(a), read_side(b)
    facts = compare(left, right)
    if as_json:
        print_json(facts)
    else:
        _print(left, right, facts)
    if limit is not None:
        _judge(left, right, facts, limit)


def read_side(path: Path) -> Side:
    """Read a run folder or a prediction. Raises `InputError` naming what is wrong with which file."""
    if path.is_dir():
        from ..datasets.profile import Profile

        return _of_profile(path, Profile.load(path))
    from ..datasets.store.files import read_json
    from ..predictor import Prediction

    document = read_json(path, what="prediction")
    if document.get("kind") != "prediction":
        raise InputError(
            f"{path}: is neither a run folder nor a prediction: kind is {document.get('kind')!r}; name a folder that "
            "profile wrote, or a file with the output of 'foretrace predict --json'"
        )
    try:
        return _of_prediction(path, Prediction.from_dict(document))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the prediction lacks or garbles a field ({error}); write it again") from error


def _of_prediction(path: Path, prediction: Prediction) -> Side:
    ops: dict[OpKey, float] = {}
    for cost in prediction.ops:
        key = (cost.name, cost.phase, cost.dims, cost.dtype)
        ops[key] = ops.get(key, 0.0) + cost.total_s
    return Side(
        label=f"{path.name}: {prediction.workload} {prediction.plan_text}",
        kind="prediction",
        step_time_s=float(prediction.step_time_s),
        interval_s=(prediction.low_s, prediction.high_s),
        spread=0.0,
        peak_memory_bytes=prediction.peak_memory_bytes,
        parts_s=dict(prediction.parts_s),
        ops_s=ops,
    )


def _of_profile(path: Path, profile: Profile) -> Side:
    if profile.step_time_s is None:
        raise InputError(f"{path}: has no step to compare: {profile.step_time_reason}")
    ops: dict[OpKey, float] = {}
    parts: dict[str, float] = {}
    rows = profile.ops
    ranks = max(1, rows["rank"].nunique())
    # Views move no data; a prediction counts their time as host time.
    for row in rows[rows.time_s.notna() & (rows.op != "view")].itertuples(index=False):
        dims = "×".join(str(int(size)) for size in (row.b, row.m, row.n, row.k) if size)
        seconds = float(row.time_s) * (float(row.count) if row.count == row.count else 1.0) / ranks
        phase = str(row.phase)
        key = (str(row.name), phase, dims, str(row.dtype))
        ops[key] = ops.get(key, 0.0) + seconds
        parts[phase] = parts.get(phase, 0.0) + seconds
    workload = (profile.manifest.get("workload") or {}).get("name", "run")
    return Side(
        label=f"{path.name}: {workload} {profile.plan or ''}".rstrip(),
        kind="profile",
        step_time_s=profile.step_time_s,
        interval_s=None,
        spread=profile.step_spread or 0.0,
        peak_memory_bytes=profile.peak_memory_bytes,
        parts_s=parts,
        ops_s=ops,
    )


def compare(a: Side, b: Side) -> dict[str, Any]:
    """The document that --json prints; every difference is B relative to A."""
    keys = sorted(
        set(a.ops_s) & set(b.ops_s) if a.ops_s and b.ops_s else (), key=lambda key: -abs(b.ops_s[key] - a.ops_s[key])
    )
    predicted, measured = (a, b) if a.kind == "prediction" else (b, a)
    inside = None
    if predicted.interval_s is not None and measured.kind == "profile":
        inside = predicted.interval_s[0] <= measured.step_time_s <= predicted.interval_s[1]
    return {
        "command": "compare",
        "a": _facts(a),
        "b": _facts(b),
        "step_change": b.step_time_s / a.step_time_s - 1.0,
        "noise": max(a.spread, b.spread),
        "measured_inside_interval": inside,
        "parts": [
            {"part": name, "a_s": a.parts_s.get(name), "b_s": b.parts_s.get(name)}
            for name in dict.fromkeys([*a.parts_s, *b.parts_s])
        ],
        "ops": [
            {"op": key[0], "phase": key[1], "dims": key[2], "dtype": key[3], "a_s": a.ops_s[key], "b_s": b.ops_s[key]}
            for key in keys
        ],
        "ops_only_in_a": len(set(a.ops_s) - set(b.ops_s)),
        "ops_only_in_b": len(set(b.ops_s) - set(a.ops_s)),
    }  # fmt: skip


def _facts(side: Side) -> dict[str, Any]:
    names = ("label", "kind", "step_time_s", "interval_s", "spread", "peak_memory_bytes")
    return {name: getattr(side, name) for name in names}


def _print(a: Side, b: Side, facts: dict[str, Any]) -> None:
    click.echo(f"A  {a.label} ({a.kind})\nB  {b.label} ({b.kind})\n")
    rows = [
        ("step", terminal.duration(a.step_time_s), terminal.duration(b.step_time_s), f"{facts['step_change']:+.1%}"),
        (
            "interval or spread", _width(a), _width(b),
            {True: "measured inside", False: "measured OUTSIDE", None: ""}[facts["measured_inside_interval"]],
        ),
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
    if facts["ops"]:
        click.echo("\nLargest differences by op, seconds per step:\n")
        ops = [
            (
                op["op"], op["phase"], op["dims"], op["dtype"], terminal.duration(op["a_s"]),
                terminal.duration(op["b_s"]), _change(op["a_s"], op["b_s"]),
            )
            for op in facts["ops"][:TOP_OPS]
        ]  # fmt: skip
        terminal.print_table(terminal.table(("op", "phase", "dims", "dtype", "A", "B", "B to A"), ops))
    elif not (a.ops_s and b.ops_s):
        terminal.say("no ops to compare: one side has no op rows")


def _width(side: Side) -> str:
    if side.interval_s is None:
        return f"±{side.spread:.1%}"
    return " to ".join(terminal.duration(bound) for bound in side.interval_s)


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


def _judge(a: Side, b: Side, facts: dict[str, Any], limit: float) -> None:
    change = facts["step_change"]
    if a.kind == b.kind == "profile":
        if change - facts["noise"] > limit:
            raise Regression(
                f"compare: {b.label} takes {terminal.duration(b.step_time_s)} a step, {change:+.1%} against "
                f"{a.label}; the limit is +{limit:.1%} beyond the noise of {facts['noise']:.1%}"
            )
    elif abs(change) > limit:
        raise Regression(
            f"compare: {b.label} and {a.label} differ by {change:+.1%} in step time; the limit is ±{limit:.1%}"
        )
