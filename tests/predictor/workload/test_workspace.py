"""The workspace of an LSTM layer: the formula against what the operator itself returns."""

import pytest
import torch
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.predictor.workload.program import Kind
from foretrace.predictor.workload.traced import trace
from foretrace.predictor.workload.workspace import rnn_workspace_bytes


@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "hidden"),
    [(10, 3, 7, 7), (1, 1, 32, 16), (7, 4, 32, 32), (9, 33, 32, 512), (3, 17, 600, 100), (5, 2, 3, 300)],
)
def test_formula_is_what_the_operator_returns(steps, batch, inputs, hidden):
    gates = 4 * hidden
    weights = [torch.zeros(gates, inputs), torch.zeros(gates, hidden), torch.zeros(gates), torch.zeros(gates)]
    state = torch.zeros(1, batch, hidden)
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    *_, workspace = torch.ops.aten.mkldnn_rnn_layer(
        torch.zeros(steps, batch, inputs), *weights, state, state, False, [], 2, hidden, 1, True, False, False, True
    )
    assert rnn_workspace_bytes(steps=steps, batch=batch, inputs=inputs, hidden=hidden) == workspace.nbytes
    assert workspace.dtype == torch.uint8


def test_a_trace_holds_the_workspace_until_backward():
    # By hand: gates 16 × 4 × 128 floats = 32,768 B; h 16 × 4 × 32 = 8,192 B; five arrays of 2 × 17 × 4 × 32 floats =
    # 17,408 B, in whole pages 20,480 B.
    one = rnn_workspace_bytes(steps=16, batch=4, inputs=32, hidden=32)
    assert one == 32768 + 8192 + 5 * 20480
    program = trace(load("lstm", layers=1, width=32, seq=16, vocab=8, batch=4), Plan.parse("global_batch=4"))[0].step
    assert one in [entry.index for entry in program.entries if entry.kind is Kind.ALLOC]
