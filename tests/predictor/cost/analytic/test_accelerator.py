"""Bases on accelerators against hand arithmetic."""

import numpy as np
import pytest
from foretrace.datasets import catalog
from foretrace.predictor.cost.analytic.accelerator import attention, gemm, traffic
from foretrace.predictor.cost.analytic.accelerator.facts import PEAK, RATE, SMS, facts_row


@pytest.fixture(scope="module")
def a100():
    return facts_row(catalog.device("A100-SXM4-80GB"), "bf16")


def one_gemm(device, m, n, k, *, b=1.0, backward=0.0):
    features, base = np.zeros((1, len(gemm.FEATURES)), np.float32), np.zeros(1)
    column = [np.array([float(value)]) for value in (b, m, n, k, backward)]
    gemm.gemm_rows(*column, device[None], np.zeros(1, np.int32), features, base)
    return base[0], dict(zip(gemm.FEATURES, features[0], strict=True))


def test_a_large_gemm_is_near_its_peak_and_never_beyond(a100):
    seconds, _ = one_gemm(a100, 8192, 8192, 8192)
    # 2 · 8192³ / 312e12 = 3.524 ms at peak.
    assert 3.524e-3 < seconds < 1.35 * 3.524e-3


def test_the_last_wave_is_padded(a100):
    # 108 multiprocessors: one block more than a wave of 256 x 128 tiles costs another wave.
    full, _ = one_gemm(a100, 256 * 12, 128 * 9, 16384)
    more, features = one_gemm(a100, 256 * 12, 128 * 9 + 1, 16384)
    assert more > 1.1 * full
    assert features["tail"] < 1


def test_a_gemm_with_one_row_is_bound_by_its_weights(a100):
    seconds, features = one_gemm(a100, 1, 16384, 16384)
    # 2 · 16384² bytes over 2.039e12 bytes/s = 263 us.
    assert 263e-6 < seconds < 1.3 * 263e-6
    assert features["compute_over_memory"] < 0


def test_backward_is_two_gemms(a100):
    forward, _ = one_gemm(a100, 8192, 8192, 8192)
    backward, features = one_gemm(a100, 8192, 8192, 8192, backward=1.0)
    assert backward == pytest.approx(2 * forward, rel=1e-6)
    assert features["backward"] == 1


def one_attention(device, q, kv, *, b=1.0, heads=32.0, d=128.0, causal=0.0, window=0.0, backward=0.0):
    features, base = np.zeros((1, len(attention.FEATURES)), np.float32), np.zeros(1)
    values = (b, q, kv, d, heads, heads, causal, window, backward)
    columns = [np.array([float(value)]) for value in values]
    attention.attention_rows(*columns, device[None], np.zeros(1, np.int32), features, base)
    return base[0]


def test_a_causal_mask_saves_almost_half_of_a_long_sequence(a100):
    full, causal = one_attention(a100, 16384, 16384), one_attention(a100, 16384, 16384, causal=1.0)
    # 128 x 128 squares on and below the diagonal of a grid of 128 x 128: (128 + 1) / 2 / 128 = 0.504.
    assert causal / full == pytest.approx(0.504, abs=0.01)
    # 4 · 32 heads · 16384² · 128 FLOPs at 312e12: 14.1 ms.
    assert full > 14.1e-3


def test_a_window_costs_in_proportion_to_itself(a100):
    # Window 1024: at most 9 squares a block row instead of up to 128.
    windowed = one_attention(a100, 16384, 16384, causal=1.0, window=1024.0)
    assert windowed < 0.2 * one_attention(a100, 16384, 16384, causal=1.0)


def test_decoding_reads_the_cache(a100):
    # 64 · 2 · 32 · 8192 · 128 · 2 bytes = 8.59 GB over 2.039e12: 4.2 ms.
    seconds = one_attention(a100, 1, 8192, b=64.0, causal=1.0)
    assert 4.2e-3 < seconds < 1.5 * 4.2e-3


def test_traffic_of_a_large_vector_op(a100):
    features, base = np.zeros((1, len(traffic.FEATURES)), np.float32), np.zeros(1)
    column = [np.array([float(value)]) for value in (1e6, 1e3, 0, 1e9, 8e9, 0)]
    traffic.traffic_rows(*column, np.zeros((1, 4)), a100[None], np.zeros(1, np.int32), features, base)
    # 8e9 / (0.84 · 2.039e12) = 4.671 ms, plus the floor of 3 us.
    assert base[0] == pytest.approx(8e9 / (0.84 * 2.039e12) + 3e-6)


def test_facts_are_those_of_the_datasheet(a100):
    assert (a100[PEAK], a100[RATE], a100[SMS]) == (312e12, 2039e9, 108)
