"""Pipeline schedules: one small file each, a function (stages, micro-batches) -> ordered actions per stage."""

from __future__ import annotations

from collections.abc import Callable

from ....datasets.errors import PlanError
from .action import Action
from .gpipe import gpipe
from .one_f_one_b import one_f_one_b

Schedule = Callable[[int, int], list[list[Action]]]

SCHEDULES: dict[str, Schedule] = {"gpipe": gpipe, "1f1b": one_f_one_b}


def schedule(name: str, stages: int, micro_batches: int) -> list[list[Action]]:
    """Actions of every stage in order. Raises `PlanError` for an unknown name."""
    if name not in SCHEDULES:
        raise PlanError(f"plan: schedule is {name!r}; known are {', '.join(SCHEDULES)}")
    return SCHEDULES[name](stages, micro_batches)


__all__ = ["SCHEDULES", "Action", "Schedule", "schedule"]
