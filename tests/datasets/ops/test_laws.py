"""Laws that hold for any shape."""

import dataclasses
from random import Random

import pytest
from foretrace.datasets.ops import DTYPE_BYTES, TensorMeta, canonical
from foretrace.datasets.ops.canonical import _RULES
from hypothesis import given
from hypothesis import strategies as st

size = st.integers(1, 64)
dtype = st.sampled_from(["fp32", "bf16", "fp64"])


def tensor(*shape, dtype="fp32"):
    return TensorMeta(shape, dtype, None)


def mm(m, n, k, dtype="fp32"):
    return canonical("aten.mm", [tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype)], [tensor(m, n, dtype=dtype)])


@given(size, size, size, dtype)
def test_gemm_bytes_scale_with_the_dtype_and_flops_do_not(m, n, k, dtype):
    op = mm(m, n, k, dtype)
    assert op.flops == mm(m, n, k).flops
    assert op.bytes / DTYPE_BYTES[dtype] == mm(m, n, k).bytes / 4


@given(size, size, size, st.integers(1, 4))
def test_gemm_flops_are_linear_in_every_dim_and_symmetric(m, n, k, factor):
    flops = mm(m, n, k).flops
    assert mm(factor * m, n, k).flops == mm(m, factor * n, k).flops == mm(m, n, factor * k).flops == factor * flops
    assert mm(n, m, k).flops == flops


@given(size, size, size, size)
def test_a_batch_of_gemms_is_that_many_gemms(b, m, n, k):
    op = canonical("aten.bmm", [tensor(b, m, k), tensor(b, k, n)], [tensor(b, m, n)])
    assert op.flops == b * mm(m, n, k).flops
    assert op.bytes == b * mm(m, n, k).bytes


@given(size, size, size, st.booleans())
def test_a_1x1_convolution_is_a_gemm(pixels, channels, filters, backward):
    x, w, y = tensor(1, channels, pixels, 1), tensor(filters, channels, 1, 1), tensor(1, filters, pixels, 1)
    rest = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    if backward:
        op = canonical("aten.convolution_backward", [y, x, w, None, *rest, [True, True, False]], [x, w])
    else:
        op = canonical("aten.convolution", [x, w, None, *rest], [y])
    assert op.flops == (2 if backward else 1) * mm(pixels, filters, channels).flops
    assert (op.m, op.n, op.k) == (pixels, filters, channels)


@given(size, size, size, size)
def test_attention_forward_is_its_two_gemms(heads, s, t, d):
    q, kv = tensor(1, heads, s, d), tensor(1, heads, t, d)
    op = canonical(
        "aten._scaled_dot_product_flash_attention_for_cpu", [q, kv, kv, 0.0, False], [q, tensor(1, heads, s)]
    )
    assert op.flops == heads * (mm(s, t, d).flops + mm(s, d, t).flops)


def any_argument(random):
    """A tensor (maybe empty or a scalar), a list, a number or nothing: a foreign trace holds all of them."""
    shape = [random.choice((0, 1, 2, 5)) for _ in range(random.randint(0, 4))]
    return random.choice(
        (tensor(*shape), tensor(*shape), tensor(*shape), [tensor(*shape)], [2, 0], [], None, True, 0, 3)
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_breaks_on_any_arguments_and_nothing_is_negative(seed):
    random = Random(seed)
    for name in _RULES:
        for _ in range(25):
            args = [any_argument(random) for _ in range(random.randint(0, 7))]
            op = canonical(f"aten.{name}", args, [arg for arg in args if isinstance(arg, TensorMeta)][:2])
            assert min(op.b, op.m, op.n, op.k) >= 0
            assert min(op.flops, op.bytes_read, op.bytes_written) >= 0


@given(size, size, size)
def test_the_same_call_is_the_same_key(m, n, k):
    assert mm(m, n, k) == mm(m, n, k)
    assert hash(mm(m, n, k)) == hash(mm(m, n, k))
    with pytest.raises(dataclasses.FrozenInstanceError):
        mm(m, n, k).m = 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_stored_bytes_never_exceed_the_elements(shape, data):
    strides = data.draw(st.lists(st.integers(0, 3), min_size=len(shape), max_size=len(shape)))
    meta = TensorMeta(tuple(shape), "fp32", tuple(strides))
    assert 4 <= meta.stored_bytes <= meta.numel * 4
