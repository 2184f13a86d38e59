"""The process that measures: `python -m foretrace.profiler.bench.worker SCRATCH`, started by `launch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rank import RankContext, rank_main


def _jobs() -> dict[str, Callable[[RankContext], dict[str, Any]]]:
    from .collectives import measure_collectives
    from .host import measure_host
    from .sweep import measure_points
    from .wrappers import measure_wrappers

    return {
        "points": measure_points,
        "collectives": measure_collectives,
        "host": measure_host,
        "wrappers": measure_wrappers,
    }


def body(context: RankContext) -> None:
    """Do the job that the task names and leave its rows."""
    context.init_process_group()
    context.result(**_jobs()[context.task["job"]](context))


if __name__ == "__main__":
    rank_main(body)
