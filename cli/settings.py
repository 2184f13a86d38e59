"""Options that several commands share: `--set KEY=VALUE`, `--seq`, `--global-batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..datasets.errors import UsageError

if TYPE_CHECKING:
    from ..datasets.plan import Plan


def read_settings(pairs: tuple[str, ...], seq: int | None = None) -> dict[str, str]:
    """`("layers=2",)` -> `{"layers": "2"}`; `seq` is short for `seq=N`. Raises `UsageError` for anything else."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--set {pair!r}: cannot read it; write KEY=VALUE, for example layers=2")
        settings[key] = value
    if seq is not None:
        settings["seq"] = str(seq)
    return settings


def read_plan(text: str, global_batch: int | None) -> Plan:
    """The plan of `--plan` with the batch of `--global-batch`. Raises `UsageError` when the two disagree."""
    from ..datasets.plan import Plan

    plan = Plan.parse(text)
    if global_batch is None:
        return plan
    if plan.global_batch not in (None, global_batch):
        raise UsageError(f"--global-batch {global_batch} contradicts global_batch={plan.global_batch} in --plan")
    return plan.with_(global_batch=global_batch)
