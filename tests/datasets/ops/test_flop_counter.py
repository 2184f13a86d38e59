"""Our FLOPs against torch's own counter, over operators that really ran."""

import pytest
import torch
import torch.nn.functional as F
from foretrace.datasets.ops import TensorMeta, canonical, dtype_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode


class Count(TorchDispatchMode):
    """Adds up our FLOPs of the operators that torch counts too."""

    families = ("matmul", "linear", "bmm", "conv1d", "conv2d", "conv3d", "attention_fwd", "attention_bwd")

    def __init__(self):
        super().__init__()
        self.flops = 0.0
        self.unknown = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = func(*args, **(kwargs or {}))
        found = outputs if isinstance(outputs, list | tuple) else [outputs]
        metas = [meta(item) for item in found if isinstance(item, torch.Tensor)]
        op = canonical(str(func), tree_map(meta, list(args)), metas)
        if op is not None and op.family in self.families:
            self.flops += op.flops
        if op is not None and op.family == "unknown":
            self.unknown.append(op.name)
        return outputs


def meta(value):
    if not isinstance(value, torch.Tensor):
        return value
    return TensorMeta(tuple(value.shape), dtype_name(str(value.dtype)), tuple(value.stride()))


def both(run):
    """(our count, torch's count) of the same work."""
    theirs = FlopCounterMode(display=False)
    with theirs:
        run()
    with Count() as ours:
        run()
    assert ours.unknown == []
    return ours.flops, theirs.get_total_flops()


@pytest.mark.parametrize("backward", [False, True])
def test_linear_and_matmul(backward):
    x = torch.randn(3, 5, 8, requires_grad=True)
    layer = torch.nn.Linear(8, 6)

    def run():
        y = layer(x) @ torch.ones(3, 6, 4)
        if backward:
            y.sum().backward()

    ours, theirs = both(run)
    assert ours == theirs > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: (torch.nn.Conv2d(6, 9, 3, stride=2, padding=1), (2, 6, 8, 8)),
        lambda: (torch.nn.Conv2d(6, 6, 3, groups=6), (2, 6, 8, 8)),
        lambda: (torch.nn.Conv2d(6, 12, 3, groups=3, dilation=2), (2, 6, 9, 9)),
        lambda: (torch.nn.Conv1d(4, 8, 5), (2, 4, 16)),
        lambda: (torch.nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
        lambda: (torch.nn.ConvTranspose2d(6, 4, 2, stride=2), (2, 6, 5, 5)),
    ],
    ids=["strided", "depthwise", "grouped-dilated", "one-dim", "three-dim", "transposed"],
)
@pytest.mark.parametrize("backward", [False, True])
def test_convolution(make, backward):
    layer, shape = make()
    x = torch.randn(shape, requires_grad=True)

    def run():
        y = layer(x)
        if backward:
            y.sum().backward()

    ours, theirs = both(run)
    if isinstance(layer, torch.nn.Conv2d) and layer.groups > 1 and backward:
        # torch counts the weight gradient of a grouped convolution as if it were not grouped; ours is the work done:
        # forward, input gradient and weight gradient are the same number of multiplications.
        with FlopCounterMode(display=False) as forward:
            layer(x)
        theirs = 3 * forward.get_total_flops()
    assert ours == theirs > 0


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))

    def run():
        F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()

    ours, theirs = both(run)
    # torch counts 0 for the CPU's fused kernel, so its formulas are asked by shape: two GEMMs and five.
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    assert theirs == 0
    shape = (2, 4, 16, 8)
    whole = sdpa_flop_count(shape, shape, shape) + sdpa_backward_flop_count(shape, shape, shape, shape)
    # Causal attention is half the square; torch's formula does not say so.
    assert ours == whole * (0.5 if causal else 1.0)
