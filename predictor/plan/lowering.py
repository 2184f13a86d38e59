"""Lowering: rank programs, a plan and prices become one TaskGraph.

One rank class per pipeline stage: while nothing tells the ranks of a stage apart they are one set of tasks whose use
of shared resources counts once per member. A class owns a compute stream, on which ops and host work follow one
another, and one stream per mesh axis for its collectives.

On a CPU host two resources are shared: cores (compute threads and gloo's threads) and memory bandwidth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...datasets.errors import UnsupportedError
from ...datasets.ops import Op, TensorMeta, canonical
from ...datasets.plan import Plan
from ..cost.pricing import Pricer
from ..engine import GraphBuilder, TaskGraph
from ..workload.program import Collective, Kind, Program
from ..workload.stage import StagePrograms
from .schedules import schedule

MIB = 1 << 20
# torch.nn.parallel.DistributedDataParallel: first bucket 1 MiB, then bucket_cap_mb=25.
_DDP_FIRST_BUCKET_BYTES, _DDP_BUCKET_BYTES = 1 * MIB, 25 * MIB


@dataclass
class Lowered:
    """A graph with the duration and the log-spread of each task, and what the durations were made of."""

    graph: TaskGraph
    duration_s: np.ndarray
    """(tasks,) seconds."""
    source_s: dict[str, float]
    """Seconds of priced work by source over all classes: measured, learned, analytic, host."""
    family_s: dict[str, float]
    """Seconds of priced work by op family, collective kind or `host`."""
    variance_s2: dict[str, float]
    """Per family: (sum of seconds × log-spread)², the errors of one family taken as common."""
    out_of_range: dict[str, float]
    """Op name -> seconds priced outside the measured range."""
    rows: list[tuple[Op, str, float, float, str]] = field(default_factory=list)
    """Unique priced rows: op, phase, seconds per call, log-spread, source."""
    calls: dict[int, int] = field(default_factory=dict)
    """Row -> calls per step over all classes."""
    unpriced: list[str] = field(default_factory=list)
    """What had no price at all, by name."""


class _Lowering:
    """State shared by all rank classes while the graph is built."""

    def __init__(self, plan: Plan, pricer: Pricer) -> None:
        self.plan = plan
        self.pricer = pricer
        self.builder = GraphBuilder()
        self.shared = plan.world_size > 1
        if self.shared:
            self.cores = self.builder.add_resource("cores", float(pricer.cluster.cores))
            self.memory = self.builder.add_resource("memory bandwidth", 1.0)
        self.durations: list[float] = []
        self.source_s: dict[str, float] = defaultdict(float)
        self.family_s: dict[str, float] = defaultdict(float)
        self.spread_s: dict[str, float] = defaultdict(float)
        self.out_of_range: dict[str, float] = defaultdict(float)
        self.rows: list[tuple[Op, str, float, float, str]] = []
        self.row_of: dict[tuple[Op, str], int] = {}
        self.calls: dict[int, int] = defaultdict(int)
        self.unpriced: list[str] = []
        self.factor = pricer.calibration.step_factor if pricer.calibration else 1.0

    def task(
        self, stream: int, duration_s: float, *, label: str, category: str, row: int = -1, after=(), uses=None
    ) -> int:
        self.durations.append(duration_s)
        return self.builder.task(stream, label=label, category=category, row=row, after=after, uses=uses or {})

    def account(self, family: str, source: str, seconds: float, spread: float) -> None:
        self.source_s[source] += seconds
        self.family_s[family] += seconds
        self.spread_s[family] += seconds * spread

    def done(self) -> Lowered:
        return Lowered(
            graph=self.builder.build(),
            duration_s=np.array(self.durations),
            source_s=dict(self.source_s),
            family_s=dict(self.family_s),
            variance_s2={family: value**2 for family, value in self.spread_s.items()},
            out_of_range=dict(self.out_of_range),
            rows=self.rows,
            calls=dict(self.calls),
            unpriced=self.unpriced,
        )


class _RankClass:
    """`members` ranks that do the same at the same time."""

    def __init__(self, lowering: _Lowering, name: str, members: int, program: Program) -> None:
        self.low = lowering
        self.name = name
        self.members = members
        self.compute = lowering.builder.add_stream(f"{name} compute")
        self._streams: dict[str, int] = {}
        self.after: list[int] = []
        self.last = -1
        self.host_s = 0.0
        self.dtensor = program.host_kind == "dtensor"
        self.space = lowering.builder.add_space(name)
        for category, size in program.resident_bytes.items():
            lowering.builder.resident(self.space, category, size)

    def stream(self, axis: str) -> int:
        if axis not in self._streams:
            self._streams[axis] = self.low.builder.add_stream(f"{self.name} {axis}")
        return self._streams[axis]

    # -- tasks ------------------------------------------------------------------------------------------------------

    def _compute(self, duration_s: float, label: str, category: str, row: int, memory_use: float) -> None:
        uses = {}
        if self.low.shared:
            uses[self.low.cores] = float(self.low.pricer.threads * self.members)
            if memory_use:
                uses[self.low.memory] = memory_use * self.members
        self.last = self.low.task(
            self.compute, duration_s, label=label, category=category, row=row, after=self.after, uses=uses
        )
        self.after = []

    def host(self, seconds: float, what: str = "host") -> None:
        """Add host work; consecutive pieces become one task."""
        self.host_s += seconds * self.low.factor
        self.low.account(what if what != "host" else "host", "host", seconds * self.low.factor, 0.3)

    def flush_host(self) -> None:
        if self.host_s > 0:
            seconds, self.host_s = self.host_s, 0.0
            self._compute(seconds, "host", "host", -1, 0.0)

    def op(self, op: Op, phase: str) -> None:
        low = self.low
        if op.family == "view":
            return
        self.host(low.pricer.host.op_s(phase, dtensor=self.dtensor))
        self.flush_host()
        price = low.pricer.price(op, phase)
        key = (op, phase)
        if key not in low.row_of:
            low.row_of[key] = len(low.rows)
            low.rows.append((op, phase, price.time_s * low.factor, price.spread, price.source))
        row = low.row_of[key]
        low.calls[row] += 1
        seconds = price.time_s * low.factor
        low.account(op.family, price.source, seconds, price.spread)
        if not price.in_range:
            low.out_of_range[op.name] = low.out_of_range.get(op.name, 0.0) + seconds
        self._compute(seconds, op.name, phase, row, price.memory_use)

    def start_collective(self, collective: Collective, after: Sequence[int] = ()) -> int:
        """Start a collective once everything issued so far is done; returns its task."""
        self.flush_host()
        low = self.low
        price = low.pricer.collective(collective)
        if price is None:
            low.unpriced.append(f"{collective.kind} over {collective.ranks} ranks")
            raise UnsupportedError(
                f"predict: the device file holds no measured {collective.kind}; run: foretrace profile machine"
            )
        low.account(collective.kind, price.source, price.time_s, price.spread)
        depends = list(after)
        if self.last >= 0:
            depends.append(self.last)
        uses = {low.cores: price.cores * self.members} if low.shared and price.cores else {}
        return low.task(
            self.stream(collective.axis), price.time_s, label=collective.kind, category="communication",
            after=depends, uses=uses,
        )  # fmt: skip

    def wait(self, task: int) -> None:
        self.flush_host()
        self.after.append(task)

    # -- programs ---------------------------------------------------------------------------------------------------

    def run(self, program: Program, ddp: _Buckets | None = None) -> None:
        """Append all entries of a program."""
        started: dict[int, int] = {}
        for number, entry in enumerate(program.entries):
            if entry.kind is Kind.OP:
                if ddp is not None and entry.phase == "optimizer":
                    ddp.finish(self)
                self.op(program.ops[entry.index], entry.phase)
            elif entry.kind is Kind.COLLECTIVE:
                started[number] = self.start_collective(program.collectives[entry.index])
            elif entry.kind is Kind.WAIT:
                self.wait(started[entry.index])
            elif entry.kind is Kind.READY and ddp is not None:
                ddp.ready(self, entry.index)
            elif entry.kind in (Kind.ALLOC, Kind.FREE):
                size = entry.index if entry.kind is Kind.ALLOC else -entry.index
                self.low.builder.alloc(max(self.last, 0), self.space, entry.category, size)
        if ddp is not None:
            ddp.finish(self)
        self.flush_host()


class _Buckets:
    """DistributedDataParallel's gradient buckets: filled in the order of readiness, reduced as they fill."""

    def __init__(self, plan: Plan, dtype: str = "fp32") -> None:
        self.ranks = plan.dp
        self.dtype = dtype
        self.filled = 0
        self.limit = _DDP_FIRST_BUCKET_BYTES
        self.tasks: list[int] = []
        self.sizes: list[int] = []
        self.finished = False

    def ready(self, rank: _RankClass, size_bytes: int) -> None:
        rank.host(rank.low.pricer.host.wrapper("ddp_parameter"), "ddp")
        # The gradient is scaled into its bucket by one out-of-place multiplication.
        rank.op(_vector_op("aten.mul", size_bytes, self.dtype), "backward")
        self.sizes.append(size_bytes)
        self.filled += size_bytes
        if self.filled >= self.limit:
            self._reduce(rank)

    def _reduce(self, rank: _RankClass) -> None:
        collective = Collective("all_reduce", self.filled, self.ranks, "dp", self.dtype)
        self.tasks.append(rank.start_collective(collective))
        self.filled, self.limit = 0, _DDP_BUCKET_BYTES

    def finish(self, rank: _RankClass) -> None:
        if self.finished:
            return
        self.finished = True
        if self.filled:
            self._reduce(rank)
        rank.host(rank.low.pricer.host.wrapper("ddp_step"), "ddp")
        for task in self.tasks:
            rank.wait(task)
        for size in self.sizes:
            rank.op(_vector_op("aten.copy_", size, self.dtype), "backward")


def _vector_op(name: str, size_bytes: int, dtype: str) -> Op:
    elements = TensorMeta((size_bytes // 4,), dtype, (1,))
    args = [elements, elements] if name == "aten.copy_" else [elements, TensorMeta((), dtype, ())]
    op = canonical(name, args, [elements])
    assert op is not None
    return op


def lower(stages: Sequence[StagePrograms], plan: Plan, pricer: Pricer) -> Lowered:
    """The whole step of all ranks as one graph.

    `stages` holds one entry per pipeline stage (one for plans without a pipeline). Raises `UnsupportedError` when a
    collective has no measured price.
    """
    low = _Lowering(plan, pricer)
    members = plan.world_size // plan.pp
    ranks = [_RankClass(low, f"stage {i}" if plan.pp > 1 else "rank", members, s.first) for i, s in enumerate(stages)]
    if plan.pp == 1:
        _lower_flat(ranks[0], stages[0], plan)
    else:
        _lower_pipeline(low, ranks, stages, plan)
    return low.done()


def _lower_flat(rank: _RankClass, stage: StagePrograms, plan: Plan) -> None:
    ddp = _Buckets(plan) if stage.ddp else None
    if stage.ddp and (buffers := stage.step.resident_bytes.get("buffers")):
        # DistributedDataParallel broadcasts the buffers (BatchNorm statistics) of rank 0 before each forward.
        rank.wait(rank.start_collective(Collective("broadcast", buffers, plan.dp, "dp")))
    for kind, count in stage.wrappers.items():
        rank.host(rank.low.pricer.host.wrapper(kind) * count, kind)
    rank.run(stage.step, ddp)


def _lower_pipeline(low: _Lowering, ranks: list[_RankClass], stages: Sequence[StagePrograms], plan: Plan) -> None:
    """Replay each stage's forward and backward program in the order of the schedule.

    Sends are asynchronous: the receiver waits for the message, the sender goes on.
    """
    orders = [list(actions) for actions in schedule(plan.schedule, plan.pp, plan.micro_batches)]
    arrived: dict[tuple[str, int, int], int] = {}  # (direction, receiving stage, micro-batch) -> message task
    buckets = [_Buckets(plan) if stage.ddp else None for stage in stages]
    position = [0] * plan.pp
    last_stage = plan.pp - 1
    while any(position[i] < len(orders[i]) for i in range(plan.pp)):
        moved = False
        for index, rank in enumerate(ranks):
            while position[index] < len(orders[index]):
                action = orders[index][position[index]]
                forward = action.kind == "F"
                needs = ("F" if forward else "B", index, action.micro_batch)
                first = index == (0 if forward else last_stage)
                if not first and needs not in arrived:
                    break
                rank.host(low.pricer.host.wrapper("pipeline_action"), "pipeline_action")
                if not first:
                    rank.wait(arrived[needs])
                stage = stages[index]
                final = not forward and action.micro_batch == plan.micro_batches - 1
                rank.run(stage.forward if forward else stage.backward, buckets[index] if final else None)
                target = index + 1 if forward else index - 1
                if 0 <= target < plan.pp:
                    size = stage.output_bytes if forward else stage.input_bytes
                    message = Collective("send_recv", size, 2, f"to {target}")
                    arrived[needs[0], target, action.micro_batch] = rank.start_collective(message)
                position[index] += 1
                moved = True
        assert moved, "the schedule waits for a message that no stage sends"
    for rank, stage in zip(ranks, stages, strict=True):
        rank.run(stage.optimizer)
