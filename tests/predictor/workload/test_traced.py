"""Tracing against hand arithmetic: FLOPs, parameters, collectives and their order, under every kind of plan."""

from __future__ import annotations

from collections import Counter

import pytest
from foretrace.datasets.errors import InputError, PlanError
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.predictor.workload.program import Kind
from foretrace.predictor.workload.traced import trace

LAYERS, WIDTH, SEQ, VOCAB, BATCH = 2, 32, 8, 64, 4
GPT = load("gpt", layers=LAYERS, width=WIDTH, heads=2, seq=SEQ, vocab=VOCAB, batch=BATCH)
# Embeddings, per block 4 projections and the MLP with biases and 2 norms, final norm, head without bias.
PARAMETERS = (
    VOCAB * WIDTH + SEQ * WIDTH
    + LAYERS * (4 * (WIDTH * WIDTH + WIDTH) + 2 * 4 * WIDTH * WIDTH + 5 * WIDTH + 4 * WIDTH)
    + 2 * WIDTH + WIDTH * VOCAB
)  # fmt: skip


def gemm_flops(program) -> float:
    return sum(op.flops * calls for op, calls in program.count().items() if op.family in ("linear", "matmul"))


def test_single_process_flops_and_memory():
    program = trace(GPT, Plan())[0].step
    tokens = BATCH * SEQ
    forward = 2 * tokens * (LAYERS * 12 * WIDTH * WIDTH + WIDTH * VOCAB)
    # Backward is two GEMMs per forward one.
    assert gemm_flops(program) == 3 * forward
    assert program.resident_bytes["parameters"] == 4 * PARAMETERS
    # AdamW: two moments, and a step counter of 4 bytes per parameter tensor (2 + 16 per block + 3).
    assert program.resident_bytes["optimizer"] == 8 * PARAMETERS + 4 * (2 + 16 * LAYERS + 3)
    assert program.unknown_ops() == {}
    allocated = Counter()
    for entry in program.entries:
        if entry.kind is Kind.ALLOC:
            allocated[entry.category] += entry.index
        elif entry.kind is Kind.FREE:
            allocated[entry.category] -= entry.index
    assert allocated["gradients"] == 0


def test_data_parallel_halves_the_work_and_notes_every_gradient():
    stage = trace(GPT, Plan(dp=2))[0]
    assert stage.ddp
    ready = [entry.index for entry in stage.step.entries if entry.kind is Kind.READY]
    assert sum(ready) == 4 * PARAMETERS
    assert gemm_flops(stage.step) == gemm_flops(trace(GPT, Plan())[0].step) / 2


def test_fsdp_gathers_twice_and_scatters_once():
    program = trace(GPT, Plan(fsdp=2))[0].step
    kinds = Counter(program.collectives[entry.index].kind for entry in program.entries if entry.kind is Kind.COLLECTIVE)
    units = LAYERS + 2  # embedding, blocks, head; the root holds no parameters of its own
    # The last unit is kept between forward and backward? FSDP2 reshards every unit but the root.
    assert kinds == {"all_gather": 2 * units, "reduce_scatter": units}
    reduced = sum(
        program.collectives[entry.index].bytes
        for entry in program.entries
        if entry.kind is Kind.COLLECTIVE and program.collectives[entry.index].kind == "reduce_scatter"
    )
    assert 4 * PARAMETERS <= reduced < 4 * PARAMETERS * 1.02
    assert {program.collectives[e.index].axis for e in program.entries if e.kind is Kind.COLLECTIVE} == {"fsdp"}


def test_tensor_parallel_all_reduces_twice_a_pass():
    program = trace(GPT, Plan(tp=2))[0].step
    reduces = [program.collectives[e.index] for e in program.entries if e.kind is Kind.COLLECTIVE]
    assert len(reduces) == 4 * LAYERS
    assert {collective.bytes for collective in reduces} == {BATCH * SEQ * WIDTH * 4}
    assert program.host_kind == "dtensor"


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_accumulation_repeats_the_passes_and_not_the_optimizer(micro_batches):
    program = trace(GPT, Plan(micro_batches=micro_batches))[0].step
    assert gemm_flops(program) == gemm_flops(trace(GPT, Plan())[0].step)
    calls = Counter(e.phase for e in program.entries if e.kind is Kind.OP and program.ops[e.index].op == "linear")
    assert calls["forward"] == 6 * LAYERS * micro_batches


def test_pipeline_stages_share_the_work():
    stages = trace(GPT, Plan(pp=2, micro_batches=2))
    whole = trace(GPT, Plan())[0].step
    total = sum(gemm_flops(s.forward) + gemm_flops(s.backward) for s in stages)
    assert 2 * total == gemm_flops(whole)
    assert stages[0].output_bytes == stages[1].input_bytes == BATCH // 2 * SEQ * WIDTH * 4
    assert stages[0].input_bytes == 0 and stages[1].output_bytes == 0
    assert sum(s.first.resident_bytes["parameters"] for s in stages) == 4 * PARAMETERS


def test_recompute_adds_one_forward_of_the_blocks():
    plain = gemm_flops(trace(GPT, Plan())[0].step)
    again = gemm_flops(trace(GPT, Plan(recompute="full"))[0].step)
    forward = 2 * BATCH * SEQ * LAYERS * 12 * WIDTH * WIDTH
    # The last GEMM of a block need not run again when nobody needs its output; torch's checkpoint may stop early.
    assert plain + 0.5 * forward < again <= plain + forward + 2 * BATCH * SEQ * WIDTH * VOCAB


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(PlanError, match="heads 2"):
        trace(GPT, Plan(tp=4))
    file = tmp_path / "peeks.py"
    file.write_text(
        "import torch\n"
        "class Peeks(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum().item() > 0 else x\n"
        "def factory():\n"
        "    m = Peeks(4, 4)\n"
        "    batch = lambda n: ((torch.ones(n, 4),), torch.ones(n, 4))\n"
        "    return m, batch, torch.nn.functional.mse_loss, torch.optim.SGD\n"
    )
    with pytest.raises(InputError, match="must not read tensor values"):
        trace(load(f"{file}:factory"), Plan())
