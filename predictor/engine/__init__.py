"""The engine: a graph of tasks and their durations -> when everything happens. Knows nothing of models or devices.

builder = GraphBuilder()
compute = builder.add_stream("compute")
...
graph = builder.build()
simulated = simulate(graph, durations_s)
Timeline.of(graph, simulated), memory_timelines(graph, simulated), parts(graph, simulated)
"""

from .graph import GraphBuilder, TaskGraph
from .memory import MemoryTimeline, memory_timelines
from .simulate import Simulated, makespans, simulate
from .timeline import Span, Timeline, critical_path, parts

__all__ = [
    "GraphBuilder",
    "MemoryTimeline",
    "Simulated",
    "Span",
    "TaskGraph",
    "Timeline",
    "critical_path",
    "makespans",
    "memory_timelines",
    "parts",
    "simulate",
]
