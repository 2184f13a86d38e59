"""Speed of the engine: tasks per second, time to the first result in a fresh process, bytes per task.

    python benchmarks/simulate_speed.py [--tasks 1000000] [--repeats 7] [--json]

The graph is that of data-parallel ranks on one host: per rank a compute stream, and a network stream that takes an
all-reduce after every fourth op. Every op waits for one of the rank before it a few ops ago, every 64th for the latest
all-reduce, which makes about one dependency per task. With resources every op uses cores and memory bandwidth and every
all-reduce uses cores. Figures are medians over the repeats, on one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from foretrace.predictor.engine import GraphBuilder, TaskGraph, makespans, simulate

FIRST_USE = """
import time
begin = time.perf_counter()
import numpy
import numba
imported = time.perf_counter()
from foretrace.predictor.engine import GraphBuilder, simulate
builder = GraphBuilder()
stream, cores = builder.add_stream("compute"), builder.add_resource("cores", 1.0)
builder.task(stream, label="op", category="forward", uses={cores: 1.0})
simulate(builder.build(), [1.0])
print(imported - begin, time.perf_counter() - imported)
"""


def data_parallel(tasks: int, ranks: int, *, shared: bool) -> tuple[TaskGraph, np.ndarray]:
    """A graph of about `tasks` tasks, and durations of 10 to 50 us (all-reduce: 100 us)."""
    builder = GraphBuilder()
    compute = [builder.add_stream(f"rank {rank} compute") for rank in range(ranks)]
    network = [builder.add_stream(f"rank {rank} network") for rank in range(ranks)]
    cores = builder.add_resource("cores", 4.0 * ranks)
    bandwidth = builder.add_resource("memory bandwidth", 1.0)
    takes = np.random.default_rng(0).uniform(0.5, 2.0, 1024) / ranks
    op_uses = [{cores: 4.0, bandwidth: take} if shared else {} for take in takes.tolist()]
    reduce_uses = {cores: 1.0} if shared else {}
    reduced = [-1] * ranks
    ops: list[int] = []
    for index in range(int(tasks / 1.25 / ranks)):
        for rank in range(ranks):
            after = [ops[-7 * ranks - 1]] if index > 8 else []
            if index % 64 == 63:
                after.append(reduced[rank])
            uses = op_uses[(index + rank) % 1024]
            op = builder.task(compute[rank], label="op", category="forward", after=after, uses=uses)
            ops.append(op)
            if index % 4 == 0:
                reduced[rank] = builder.task(
                    network[rank], label="all_reduce", category="communication", after=[op], uses=reduce_uses
                )
    graph = builder.build()
    durations = np.random.default_rng(1).uniform(10e-6, 50e-6, len(graph))
    durations[graph.stream >= ranks] = 100e-6
    return graph, durations


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Median time of a call, after one that does not count."""
    function()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def first_use() -> list[float]:
    """Seconds in a fresh process: import of numba, then from importing the engine to a result."""
    run = subprocess.run([sys.executable, "-c", FIRST_USE], check=True, capture_output=True)
    return [float(word) for word in run.stdout.split()]


def measure(tasks: int, samples: int, repeats: int) -> dict[str, float]:
    """All figures by name; the unit is in the name."""
    figures: dict[str, float] = {}

    begin = time.perf_counter()
    graph, durations = data_parallel(tasks, 4, shared=False)
    figures["build_tasks_per_s"] = len(graph) / (time.perf_counter() - begin)
    figures["graph_bytes_per_task"] = graph.nbytes / len(graph)
    figures["dependencies_per_task"] = len(graph.dep_idx) / len(graph)
    figures["plain_tasks_per_s"] = len(graph) / seconds(lambda: simulate(graph, durations), repeats)

    few, few_durations = data_parallel(tasks // 10, 4, shared=False)
    matrix = few_durations * np.random.default_rng(1).lognormal(0.0, 0.1, (samples, len(few)))
    figures["matrix_tasks_per_s"] = matrix.size / seconds(lambda: simulate(few, matrix), repeats)
    figures["makespans_tasks_per_s"] = matrix.size / seconds(lambda: makespans(few, matrix), repeats)

    for ranks in (1, 2, 4, 8):
        graph, durations = data_parallel(tasks // 4, ranks, shared=True)
        simulated = simulate(graph, durations)
        figures[f"resources_{ranks}_ranks_tasks_per_s"] = len(graph) / seconds(
            partial(simulate, graph, durations), repeats
        )
        figures[f"resources_{ranks}_ranks_running"] = float(
            (simulated.end_s - simulated.start_s).sum() / simulated.makespan_s
        )

    runs = [first_use() for _ in range(repeats)]
    figures["import_numba_s"] = statistics.median(run[0] for run in runs)
    figures["first_use_s"] = statistics.median(run[1] for run in runs)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=50, help="rows of the matrix, each of a tenth of the tasks")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.tasks, arguments.samples, arguments.repeats)
    if arguments.json:
        print(json.dumps({"schema_version": 1, "kind": "simulate_speed", **vars(arguments), **figures}, indent=2))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:<{width}}  " + (f"{value / 1e6:10.2f} M" if name.endswith("tasks_per_s") else f"{value:10.3f}"))


if __name__ == "__main__":
    main()
