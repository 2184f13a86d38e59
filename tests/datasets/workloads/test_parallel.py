"""Plans change where the arithmetic happens, not its result; impossible ones are refused at once with the numbers."""

import os
import re

import pytest
from foretrace.datasets.errors import PlanError, UnsupportedError
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import Workload, load
from foretrace.datasets.workloads.parallel import apply_plan, check_plan, coordinates, replica_of, stage_modules
from foretrace.datasets.workloads.pipeline import stage_inputs
from foretrace.datasets.workloads.step import make_step
from foretrace.profiler.launch import launch
from torch import nn

GPT = {"layers": 2, "width": 16, "heads": 4, "seq": 8, "vocab": 32, "batch": 8, "lr": 1e-2}
DLRM = {"tables": 3, "rows": 20, "width": 8, "bottom": 16, "top": 16, "layers": 2, "batch": 8}
VIT = {"layers": 2, "width": 16, "heads": 4, "image": 8, "patch": 4, "classes": 5, "batch": 8}
LSTM = {"layers": 2, "width": 8, "seq": 4, "vocab": 16, "batch": 8}

TWO_RANKS = [
    ("gpt", GPT, "dp=2"),
    ("gpt", GPT, "dp=2,micro_batches=2,recompute=full"),
    ("gpt", GPT, "fsdp=2"),
    ("gpt", GPT, "fsdp=2,micro_batches=2,recompute=full"),
    ("gpt", GPT, "tp=2"),
    ("gpt", GPT, "tp=2,micro_batches=2,recompute=full"),
    ("gpt", GPT, "pp=2,schedule=gpipe,micro_batches=4"),
    ("gpt", GPT, "pp=2,schedule=1f1b,micro_batches=4"),
    ("gpt", GPT, "pp=2,micro_batches=2,recompute=full"),
    ("dlrm", DLRM, "pp=2,micro_batches=4"),
    ("dlrm", DLRM, "dp=2"),
    ("vit", VIT, "tp=2"),
    ("lstm", LSTM, "pp=2,micro_batches=2"),
]
FOUR_RANKS = [
    ("gpt", GPT, "dp=2,fsdp=2"),
    ("gpt", GPT, "fsdp=2,tp=2"),
    ("gpt", GPT, "pp=2,dp=2,micro_batches=2"),
]

RANK = """
import torch
from torch import distributed
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.datasets.workloads.step import make_step
from foretrace.profiler.rank import rank_main

def body(context):
    torch.set_num_threads(1)
    context.init_process_group()
    found = []
    for name, settings, plan in context.task["cases"]:
        print(name, plan, flush=True)  # shown in the message when this case fails
        step = make_step(load(name, **settings), Plan.parse(plan), rank=context.rank)
        losses = [step.run() for _ in range(3)]
        found.append([None if loss is None else loss.item() for loss in losses])
        context.barrier()
    context.result(losses=found)

rank_main(body)
"""


@pytest.mark.parametrize(("ranks", "cases"), [(2, TWO_RANKS), (4, FOUR_RANKS)])
def test_parallel_equals_single(tmp_path, monkeypatch, ranks, cases):
    (tmp_path / "equal_ranks.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    results = launch("equal_ranks", {"cases": cases}, world_size=ranks, threads=1, what="comparing losses")
    for index, (name, settings, plan) in enumerate(cases):
        single = make_step(load(name, **settings), Plan())
        expected = [single.run().item() for _ in range(3)]
        by_rank = [result["losses"][index] for result in results]
        shown = [losses for losses in by_rank if losses[0] is not None]
        # Every replica has the mean over its own samples; ranks of one replica all have the same number.
        mean = [sum(step) / len(step) for step in zip(*shown, strict=True)]
        assert mean == pytest.approx(expected, abs=1e-4), f"{name} {plan}"


@pytest.mark.parametrize(
    ("spec", "settings", "plan", "error", "message"),
    [
        ("gpt", {"heads": 4}, "tp=3", PlanError, "heads 4 does not divide by tp(3); remainder 1"),
        ("gpt", {"batch": 8}, "dp=3", PlanError, "global_batch 8 does not divide by dp(3)"),
        ("gpt", {}, "pp=2,schedule=1f1b", PlanError, "1f1b over pp(2) needs at least 2 micro_batches, found 1"),
        ("resnet", {}, "tp=2", UnsupportedError, "workload resnet has no tensor parallel form"),
        ("gpt", {}, "tp=2,pp=2", UnsupportedError, "pp(2) × tp(2) together cannot be run"),
        ("gpt", {}, "dp=2,tp=2", UnsupportedError, "dp(2) × tp(2) together cannot be run"),
    ],
)
def test_refused_at_once(spec, settings, plan, error, message):
    with pytest.raises(error, match=re.escape(message)):
        check_plan(load(spec, **settings), Plan.parse(plan))


def test_more_stages_than_blocks():
    plan = Plan(pp=5, micro_batches=5)
    with pytest.raises(PlanError, match=re.escape("4 layers cannot be split over pp(5)")):
        stage_modules(load("gpt", **GPT).build(), plan)


def test_pipeline_needs_a_sequential():
    with pytest.raises(UnsupportedError, match="the top module is Linear"):
        stage_modules(nn.Linear(2, 2), Plan(pp=2))


def test_tp_styles_that_match_nothing():
    gpt = load("gpt", **GPT)
    fields = ("name", "build", "make_batch", "loss", "make_optimizer")
    wrong = Workload(batch=8, tp_styles={"*.nowhere": "colwise"}, **{name: getattr(gpt, name) for name in fields})
    with pytest.raises(PlanError, match=r"no module matches tp_styles \*.nowhere"):
        apply_plan(gpt.build(), wrong, Plan(tp=2), {"tp": None})


def test_coordinates_have_pp_outermost():
    plan = Plan(pp=2, dp=3, fsdp=2, tp=2)
    # rank = ((pp · 3 + dp) · 2 + fsdp) · 2 + tp
    assert coordinates(plan, ((1 * 3 + 2) * 2 + 0) * 2 + 1) == {"pp": 1, "dp": 2, "fsdp": 0, "tp": 1}
    assert [replica_of(plan, rank) for rank in range(12)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_stages_keep_names_and_shapes_flow():
    workload = load("gpt", **GPT)
    plan = Plan(pp=3, micro_batches=4)
    stages = stage_modules(workload.build(), plan)
    # Four children over three stages: 2 + 1 + 1.
    assert [[name for name, _ in stage.named_children()] for stage in stages] == [["0", "1"], ["2"], ["3"]]
    inputs, _ = workload.make_batch(2)
    shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in stage_inputs(stages, plan, inputs)]
    assert shapes == [[(2, 8)], [(2, 8, 16)], [(2, 8, 16)], [(2, 8, 32)]]


def test_shapes_at_stage_borders_leave_batch_norm_alone():
    workload = load("resnet", width=4, blocks=1, stages=2, image=8)
    plan = Plan(pp=2, micro_batches=2)
    stages = stage_modules(workload.build(), plan)
    stage_inputs(stages, plan, workload.make_batch(2)[0])
    assert stages[0].get_submodule("0.norm").num_batches_tracked.item() == 0


@pytest.fixture
def fake_ranks():
    """A process group of two ranks whose collectives do nothing: enough to count them."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    distributed.destroy_process_group()


# The counting mode puts backward hooks on the embedding too, whose input is integers.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_tensor_parallel_block_needs_four_all_reduces(fake_ranks):
    from torch.distributed.tensor.debug import CommDebugMode

    step = make_step(load("gpt", **GPT), Plan(tp=2))
    with CommDebugMode() as counted:
        step.run()
    # Two blocks, attention and feed-forward each: one in forward (output), one in backward (input gradient).
    assert counted.get_total_counts() == 2 * 2 * 2
