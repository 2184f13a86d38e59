"""What can be asked for: directions, the dims an op needs, and which measured device is nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....datasets.catalog import device
from ....datasets.errors import UsageError
from ....datasets.ops.table import OpTable
from ..analytic.accelerator.facts import facts_row
from .families import ATTENTION_OPS, GEMM_OPS, NAMES, device_features, families_of

if TYPE_CHECKING:
    from .pricer import OpPricer

DIRECTIONS = ("fwd", "bwd", "bwd_input", "bwd_weight", "opt")
_DIMS = {
    "convolution": ("n", "c", "h", "w", "k_out", "r", "s"),
    "recurrent": ("hidden", "batch", "timesteps"),
    "experts": ("tokens", "hidden", "inter", "topk", "experts"),
}
VECTOR_OPS = (
    "elementwise.<name>", "softmax", "softmax_causal_fused", "layernorm", "rmsnorm", "rope", "embedding",
    "masked_fill", "cross_entropy", "optimizer_step",
)  # fmt: skip
OPS = (*GEMM_OPS[:3], *ATTENTION_OPS, "conv2d", "rnn.vanilla", "rnn.gru", "rnn.lstm", "moe_ffn", *VECTOR_OPS)


def required_dims(op: str) -> tuple[str, ...]:
    """Dims without which `op` has no price. Raises `UsageError` for an op that is not known."""
    if op in GEMM_OPS:
        return ("m", "n", "k")
    if op in ATTENTION_OPS:
        return ("m", "n", "k", "heads")
    if op == "conv2d":
        return _DIMS["convolution"]
    if op.startswith("rnn.") and op in OPS:
        return _DIMS["recurrent"]
    if op == "moe_ffn":
        return _DIMS["experts"]
    if op in OPS or op.startswith("elementwise."):
        return ("m",) if op == "optimizer_step" else ("m", "n")
    raise UsageError(f"op {op!r} is not known; known are {', '.join(OPS)}")


def nearest_device(pricer: OpPricer, table: OpTable, row: int) -> str | None:
    """The device most alike among those that the row's family was fitted on; None when there is none."""
    one = table.take(np.array([row]))
    model = pricer.models.get(NAMES[int(families_of(one)[0])])
    if model is None:
        return None
    name, dtype = one.device.texts()[0], one.dtype.texts()[0]
    keys = list(model.card["devices"])
    if (key := device(name).key) in keys:
        return key
    facts = np.array([facts_row(device(other), dtype) for other in (name, *keys)])
    features = device_features(facts, np.arange(len(facts), dtype=np.int32))
    return keys[int(np.abs(features[1:] - features[0]).sum(axis=1).argmin())]
