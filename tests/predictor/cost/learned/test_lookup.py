"""Measured rows: exact lookup, and residuals interpolated along lines."""

import numpy as np
import pandas as pd
import pytest
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.lines import MeasuredLines
from foretrace.predictor.cost.learned.lookup import MeasuredOps

ROW = {
    "op": "matmul", "device": "T4", "dtype": "fp16", "direction": "fwd", "source": "here", "framework": "torch/2",
    "b": 1, "m": 256, "n": 128, "k": 64, "shape": "{}", "time_s": 1e-3,
}  # fmt: skip


def table(*changes):
    return OpTable.of_frame(pd.DataFrame([{**ROW, **change} for change in changes]), where="t", times=True)


def test_an_equal_row_is_found_with_the_geometric_mean_of_its_repeats():
    measured = MeasuredOps.of(table({"time_s": 1e-3}, {"time_s": 4e-3}, {"m": 512}))
    found = measured.lookup(table({}, {"m": 512}, {"m": 300}, {"dtype": "fp32"}, {"device": "P4"}))
    assert found[:2] == pytest.approx([2e-3, 1e-3])
    assert np.isnan(found[2:]).all()


def test_another_source_is_another_row_unless_none_is_named():
    measured = MeasuredOps.of(table({}, {"source": "there", "time_s": 4e-3}))
    nobody = {"source": "", "framework": ""}
    assert measured.lookup(table({}, nobody, {"source": "elsewhere"}))[:2] == pytest.approx([1e-3, 2e-3])


def test_a_field_of_shape_tells_rows_apart_and_repeats_do_not():
    measured = MeasuredOps.of(table({"shape": '{"heads": 8, "lat_min": 0.1}'}))
    found = measured.lookup(table({"shape": '{"heads": 8}'}, {"shape": '{"heads": 4}'}))
    assert found[0] == pytest.approx(1e-3)
    assert np.isnan(found[1])


def test_residuals_are_interpolated_in_the_log_of_a_dim():
    # Measured at m = 64 and 256: log residuals 0.1 and 0.3. Half way in octaves lies 128, one octave from each: its
    # line says 0.2, believed with weight 1 / (1 + (1 / 0.5)²) = 0.2.
    lines = MeasuredLines.of(table({"m": 64}, {"m": 256}), np.array([0.1, 0.3]))
    said, distance = lines.interpolate(table({"m": 128}, {"m": 256}, {"m": 4096}, {"m": 128, "n": 7}))
    assert said == pytest.approx([0.2 * 0.2, 0.3, 0.0, 0.0])
    assert list(distance) == [1.0, 0.0, np.inf, np.inf]


def test_repeats_on_a_line_count_once():
    lines = MeasuredLines.of(table({"m": 64}, {"m": 64}, {"m": 64}), np.array([0.1, 0.2, 0.6]))
    assert lines.interpolate(table({"m": 64}))[0] == pytest.approx([0.3])


def test_a_row_without_a_residual_is_no_neighbour():
    lines = MeasuredLines.of(table({"m": 64}), np.array([np.nan]))
    assert list(lines.interpolate(table({"m": 64}))[1]) == [np.inf]
