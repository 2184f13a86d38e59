"""One test over every family's analytic price, and hand arithmetic for the ones with a formula of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from foretrace.datasets.ops import Op, TensorMeta, canonical
from foretrace.datasets.ops.canonical import _RULES
from foretrace.predictor.cost.analytic import analytic_time_s, families
from foretrace.predictor.hardware.device import Device

DEVICE = Device(
    name="paper", kind="cpu", flops_per_s={"fp32": 1e11}, bytes_per_s=1e10, cache_bytes_per_s=4e10, cache_bytes=1e6,
    launch_s=1e-6,
)  # fmt: skip


def op(family: str, **dims: float) -> Op:
    values = {"b": 2, "m": 64, "n": 64, "k": 64, "flops": 1e7, "bytes_read": 4e5, "bytes_written": 4e5} | dims
    return Op(op=family, name=f"aten.{family}", direction="fwd", dtype="fp32", **values)


@pytest.mark.parametrize("family", families())
def test_positive_finite_and_monotone_in_size(family):
    small = op(family)
    factor = 8
    large = op(family, m=64 * factor, flops=1e7 * factor, bytes_read=4e5 * factor, bytes_written=4e5 * factor)
    if family == "view":
        assert analytic_time_s(small, DEVICE) == DEVICE.launch_s
        return
    assert DEVICE.launch_s < analytic_time_s(small, DEVICE) < analytic_time_s(large, DEVICE) < 10


@pytest.mark.parametrize("family", families())
def test_never_beats_the_roofline(family):
    # A price below both peak FLOP/s and cache bandwidth would be faster than the device can be. Families whose own
    # formula counts work from dims are given consistent ones.
    wide = op(family, m=512, n=512, k=512, b=1, flops=2 * 512.0**3, bytes_read=2e6, bytes_written=1e6)
    if family in ("view",):
        return
    roofline_s = 3e6 / DEVICE.cache_bytes_per_s
    assert analytic_time_s(wide, DEVICE) >= roofline_s


def test_every_rule_of_the_op_registry_has_an_analytic_family():
    matrix = TensorMeta((4, 4), "fp32", (4, 1))
    known = set(families())
    for name in _RULES:
        made = canonical(f"aten.{name}" if "." not in name else name, [matrix] * 12, [matrix])
        assert made is not None
        assert made.family in known


def test_gemm_by_hand():
    # 64 × 64 × 64 is whole tiles of 8 × 16; k gets 32 more: 2 · 64 · 64 · 96 FLOPs at 1e11/s.
    gemm = replace(op("matmul", b=1, bytes_read=1.0, bytes_written=1.0), m=64, n=64, k=64)
    assert analytic_time_s(gemm, DEVICE) == pytest.approx(1e-6 + 2 * 64 * 64 * 96 / 1e11)
    # One row costs as much as a tile of eight.
    one_row = replace(gemm, m=1)
    assert analytic_time_s(one_row, DEVICE) == pytest.approx(1e-6 + 2 * 8 * 64 * 96 / 1e11)


def test_vector_by_hand():
    # 0.8 MB fit the cache of 1 MB: 0.8e6 / 4e10. 8 MB do not: 8e6 / 1e10.
    assert analytic_time_s(op("elementwise"), DEVICE) == pytest.approx(1e-6 + 0.8e6 / 4e10)
    large = op("elementwise", bytes_read=4e6, bytes_written=4e6)
    assert analytic_time_s(large, DEVICE) == pytest.approx(1e-6 + 8e6 / 1e10)


def test_bandwidth_has_no_jump():
    sizes = [1e5 * 1.1**step for step in range(60)]
    times = [size / DEVICE.bandwidth_bytes_per_s(size) for size in sizes]
    assert all(a < b for a, b in pairwise(times))
    assert DEVICE.bandwidth_bytes_per_s(1e6) == 4e10
    assert DEVICE.bandwidth_bytes_per_s(4e6) == 1e10
