"""Built-in workloads: each learns a fixed batch, and has the parameters that arithmetic says."""

import pytest
import torch
from foretrace.datasets.errors import UsageError
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import BUILT_IN, load
from foretrace.datasets.workloads.step import make_step
from torch import nn

TINY = {
    "dlrm": {"tables": 3, "rows": 20, "width": 8, "bottom": 16, "top": 16, "layers": 2, "batch": 16, "lr": 1.0},
    "gpt": {"layers": 2, "width": 16, "heads": 2, "seq": 8, "vocab": 32, "batch": 4, "lr": 1e-2},
    "lstm": {"layers": 2, "width": 16, "seq": 8, "vocab": 32, "batch": 4, "lr": 1e-2},
    "mlp": {"layers": 2, "width": 16, "hidden": 32, "features": 8, "classes": 5, "batch": 16, "lr": 1e-2},
    "resnet": {"width": 4, "blocks": 1, "stages": 2, "image": 8, "classes": 5, "batch": 8},
    "vit": {"layers": 2, "width": 16, "heads": 2, "image": 8, "patch": 4, "classes": 5, "batch": 8, "lr": 1e-2},
}


def parameters(spec, **settings):
    return sum(parameter.numel() for parameter in load(spec, **settings).build().parameters())


@pytest.mark.parametrize("name", BUILT_IN)
def test_learns_a_fixed_batch(name):
    step = make_step(load(name, **TINY[name]), Plan())
    losses = [step.run().item() for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", BUILT_IN)
def test_top_is_sequential_with_a_block_per_stage(name):
    module = load(name, **TINY[name]).build()
    assert isinstance(module, nn.Sequential)
    assert len(module) >= 4


@pytest.mark.parametrize("plan", ["recompute=full", "micro_batches=2", "micro_batches=4,recompute=full"])
def test_plan_of_one_process_changes_no_result(plan):
    losses = []
    for text in ("single", plan):
        step = make_step(load("gpt", **TINY["gpt"]), Plan.parse(text))
        losses.append([step.run().item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_bf16_is_close_and_keeps_fp32_parameters():
    losses = []
    for text in ("single", "precision=bf16"):
        step = make_step(load("gpt", **TINY["gpt"]), Plan.parse(text))
        losses.append(step.run().item())
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert {parameter.dtype for parameter in step.module.parameters()} == {torch.float32}


def test_gradients_are_dropped_after_a_step():
    step = make_step(load("mlp", **TINY["mlp"]), Plan())
    step.run()
    assert all(parameter.grad is None for parameter in step.module.parameters())


def test_gpt_parameters():
    # D=16, vocab 32, seq 8, hidden 64, two blocks.
    block = 4 * (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16) + 2 * 2 * 16
    embed, head = 32 * 16 + 8 * 16, 2 * 16 + 16 * 32
    assert parameters("gpt", **TINY["gpt"]) == embed + 2 * block + head


def test_vit_parameters():
    # D=16, 4×4 patches of 3 channels, (8/4)² = 4 patches, 5 classes.
    block = 4 * (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16) + 2 * 2 * 16
    patches, head = 3 * 4 * 4 * 16 + 16 + 4 * 16, 2 * 16 + 16 * 5 + 5
    assert parameters("vit", **TINY["vit"]) == patches + 2 * block + head


def test_resnet_parameters():
    # Stem 3->4; block 4->4; block 4->8 with a 1×1 shortcut; each norm has 2 per channel; head 8->5.
    stem = 3 * 4 * 9 + 2 * 4
    first = 2 * (4 * 4 * 9 + 2 * 4)
    second = (4 * 8 * 9 + 2 * 8) + (8 * 8 * 9 + 2 * 8) + (4 * 8 + 2 * 8)
    assert parameters("resnet", **TINY["resnet"]) == stem + first + second + 8 * 5 + 5


def test_mlp_parameters():
    # 8 -> 16, two blocks of norm and 16 -> 32 -> 16, 16 -> 5.
    block = 2 * 16 + (16 * 32 + 32) + (32 * 16 + 16)
    assert parameters("mlp", **TINY["mlp"]) == (8 * 16 + 16) + 2 * block + (16 * 5 + 5)


def test_dlrm_parameters():
    # Bottom 13 -> 16 -> 8; 3 tables of 20 × 8; 4 vectors give 4·3/2 = 6 pairs; top 8+6 -> 16 -> 16 -> 1.
    bottom = (13 * 16 + 16) + (16 * 8 + 8)
    top = (14 * 16 + 16) + (16 * 16 + 16) + (16 + 1)
    assert parameters("dlrm", **TINY["dlrm"]) == bottom + 3 * 20 * 8 + top


def test_lstm_parameters():
    # Four gates, each with input and hidden weights and two biases.
    layer = 4 * (16 * 16 + 16 * 16 + 16 + 16)
    assert parameters("lstm", **TINY["lstm"]) == 32 * 16 + 2 * layer + (16 * 32 + 32)


@pytest.mark.parametrize("name", ["gpt", "vit"])
def test_width_must_divide_by_heads(name):
    with pytest.raises(UsageError, match="width 10 does not divide by heads 4; remainder 2"):
        load(name, width=10, heads=4)
