"""Measured prices: exact at measured shapes, sensible between and beyond them."""

from __future__ import annotations

from math import log

import pytest
from foretrace.datasets.ops import Op, TensorMeta, canonical
from foretrace.predictor.cost.analytic import analytic_time_s
from foretrace.predictor.cost.measured import MeasuredTable
from foretrace.predictor.hardware.device import Device
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = Device(
    name="paper", kind="cpu", flops_per_s={"fp32": 1e11}, bytes_per_s=1e10, cache_bytes_per_s=4e10, cache_bytes=1e6,
    launch_s=1e-6,
)  # fmt: skip


def matmul(m: int, n: int, k: int) -> Op:
    made = canonical(
        "aten.mm",
        [TensorMeta((m, k), "fp32", (k, 1)), TensorMeta((k, n), "fp32", (n, 1))],
        [TensorMeta((m, n), "fp32", (n, 1))],
    )
    assert made is not None
    return made


def add(elements: int) -> Op:
    tensor = TensorMeta((elements,), "fp32", (1,))
    made = canonical("aten.add", [tensor, tensor, 1], [tensor])
    assert made is not None
    return made


def table(factor: float = 2.0) -> MeasuredTable:
    shapes = [(m, n, k) for m in (64, 512, 4096) for n in (64, 181, 512) for k in (64, 181, 512)]
    rows = [(matmul(*shape), factor * analytic_time_s(matmul(*shape), DEVICE), 0.02) for shape in shapes]
    rows += [(add(1 << power), 3.0 * analytic_time_s(add(1 << power), DEVICE), 0.02) for power in range(6, 24, 3)]
    return MeasuredTable(rows, DEVICE)


def test_a_measured_shape_gets_its_measured_time():
    found = table().lookup(matmul(512, 512, 64))
    assert found is not None and found.own_group and found.distance == 0
    assert found.time_s == pytest.approx(2 * analytic_time_s(matmul(512, 512, 64), DEVICE))
    assert found.spread == pytest.approx(0.02)


@given(st.integers(64, 4096), st.integers(64, 512), st.integers(64, 512))
@settings(deadline=None)
def test_a_constant_ratio_is_kept_everywhere(m, n, k):
    found = table().lookup(matmul(m, n, k))
    assert found is not None and found.in_range
    assert log(found.time_s / analytic_time_s(matmul(m, n, k), DEVICE)) == pytest.approx(log(2.0), abs=1e-6)


def test_far_away_the_analytic_trend_goes_on_and_it_says_so():
    far = matmul(1 << 20, 1 << 14, 1 << 14)
    found = table().lookup(far)
    assert found is not None and not found.in_range
    assert found.time_s == pytest.approx(2 * analytic_time_s(far, DEVICE), rel=0.01)
    assert found.spread > table().lookup(matmul(512, 512, 64)).spread


def test_an_op_without_rows_borrows_from_its_kin():
    tensor = TensorMeta((4096,), "fp32", (1,))
    sub = canonical("aten.sub", [tensor, tensor], [tensor])
    found = table().lookup(sub)
    assert found is not None and not found.own_group and not found.in_range
    assert found.time_s == pytest.approx(3 * analytic_time_s(sub, DEVICE), rel=1e-3)


def test_nothing_like_it_was_measured():
    indices, weight = TensorMeta((8,), "int64", (1,)), TensorMeta((10, 4), "fp32", (4, 1))
    assert table().lookup(canonical("aten.embedding", [weight, indices], [TensorMeta((8, 4), "fp32", (4, 1))])) is None


def test_a_trend_in_the_ratio_is_followed_between_its_rows():
    # The ratio falls from 4 to 1 over twelve doublings, linearly in log2: half way it is 2.
    def truth(power: float) -> float:
        return 4.0 * 2 ** (-(power - 8) / 6)

    rows = [(add(1 << p), truth(p) * analytic_time_s(add(1 << p), DEVICE), 0.0) for p in range(8, 22, 2)]
    found = MeasuredTable(rows, DEVICE).lookup(add(3 << 13))
    assert found is not None
    expected = truth(13 + log(3, 2)) * analytic_time_s(add(3 << 13), DEVICE)
    assert found.time_s == pytest.approx(expected, rel=0.03)
