"""Points: their keys are those of real training, op by op."""

import pytest
import torch
from foretrace.profiler.bench.chains import Chain, OpTimer
from foretrace.profiler.bench.point import Prepared, operand_bytes
from foretrace.profiler.bench.points import _linear, points
from torch import nn


def _trained(module: nn.Module, x: torch.Tensor) -> dict[str, list]:
    timer = OpTimer(learn=True)
    output = module(x)
    with timer:
        output = module(x)
        output.backward(torch.ones_like(output))
    found: dict[str, list] = {}
    for op in timer.ops:
        if op is not None:
            found.setdefault(op.name, []).append(op)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_has_the_keys_of_a_traced_linear(dtype):
    tokens, inputs, outputs = 24, 8, 16
    traced = _trained(
        nn.Linear(inputs, outputs, dtype=dtype), torch.rand(tokens, inputs, dtype=dtype, requires_grad=True)
    )
    forward, dgrad, wgrad = (Prepared(_linear(role, tokens, outputs, inputs, dtype)).op for role in range(3))
    assert traced["aten.addmm"] == [forward]
    assert sorted(traced["aten.mm"], key=repr) == sorted([dgrad, wgrad], key=repr)


def test_every_point_has_a_known_family_and_runs():
    seen = set()
    for point in points(quick=True):
        # One small point of each operator and dtype; the sizes are the same code.
        if operand_bytes(point) > 1 << 16:
            continue
        prepared = Prepared(point)
        if (prepared.op.name, prepared.op.dtype) in seen:
            continue
        seen.add((prepared.op.name, prepared.op.dtype))
        prepared.touch()
        prepared.run()
        assert prepared.op.family != "unknown", point.call
    assert len(seen) > 50


def test_operand_bytes_allocates_nothing_and_counts_storages():
    # (24 × 8) and (16 × 8) of 4 bytes and a bias of 16.
    assert operand_bytes(_linear(0, 24, 16, 8, torch.float32)) == 4 * (24 * 8 + 16 * 8 + 16)


def test_chain_runs_the_operators_of_the_optimizer():
    optimizer = Chain("AdamW", (4, 4)).prepare()
    timer = OpTimer(learn=True)
    with timer:
        optimizer.step()
    names = {op.name for op in timer.ops if op is not None and op.family != "view"}
    assert {"aten.lerp_", "aten.addcmul_", "aten.sqrt", "aten.addcdiv_"} <= names
    assert len(timer.durations_s) == len(timer.ops)
