"""Outputs that an operator has when it runs and loses under FakeTensorMode: oneDNN's workspace of an LSTM layer."""

from __future__ import annotations

from typing import Any

import torch

_PAGE_BYTES = 4096
_GATES, _LEVELS = 4, 2  # input, forget, cell and output gate; states below and above the layer
_INPUT, _HIDDEN_SIZE, _TRAIN, _WORKSPACE = 0, 10, 15, 3  # places in the arguments and outputs of the operator


def rnn_workspace_bytes(*, steps: int, batch: int, inputs: int, hidden: int) -> int:
    """Bytes that oneDNN keeps between forward and backward of one fp32 LSTM layer in one direction.

    Seven arrays, each rounded up to a page: gates and one state of (steps × batch) rows; five states of
    (2 × (steps + 1) × batch) rows, three as wide as the wider of input and hidden state, two (c) not padded. Found from
    the workspaces that torch 2.13 returned on an x86 CPU; equal to the byte for ten shapes.
    """
    states = _LEVELS * (steps + 1)
    wide = _row(max(inputs, hidden))
    floats = [steps * _row(_GATES * hidden), steps * _row(hidden), *3 * [states * wide], *2 * [states * hidden]]
    return sum(-(-4 * batch * each // _PAGE_BYTES) * _PAGE_BYTES for each in floats)


def _row(width: int) -> int:
    """Floats from one row to the next: whole cache lines, and one more where rows would fall on the same cache sets."""
    padded = -(-width // 16) * 16
    return padded + 16 if padded % 256 == 0 else padded


def with_workspace(name: str, args: Any, outputs: Any) -> Any:
    """`outputs` with the workspace at its real size where operator `name` has one, else unchanged.

    Known for fp32 layers of one direction, which is how torch calls oneDNN; other dtypes keep the empty workspace.
    """
    if name != "aten::mkldnn_rnn_layer" or not args[_TRAIN] or outputs[0].dtype != torch.float32:
        return outputs
    steps, batch, inputs = args[_INPUT].shape
    size = rnn_workspace_bytes(steps=steps, batch=batch, inputs=inputs, hidden=args[_HIDDEN_SIZE])
    workspace = torch.empty(size, dtype=torch.uint8, device=outputs[0].device)
    return (*outputs[:_WORKSPACE], workspace)
