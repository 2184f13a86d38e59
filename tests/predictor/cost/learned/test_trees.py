"""Trees: our loop says what xgboost says, and damaged arrays are refused."""

import numpy as np
import pytest
from foretrace.datasets.errors import InputError
from foretrace.predictor.cost.learned.trees import Trees, boost


def stump():
    # feature 1 < 2.5 -> left: 10, else right; right: feature 0 < 0 -> 20 else 30. The left child is a leaf already.
    return Trees(
        np.array([[1, 0, 0]], np.int16), np.array([[2.5, np.inf, 0.0]], np.float32),
        np.array([[10.0, 10.0, 20.0, 30.0]], np.float32), 0.5,
    )  # fmt: skip


def test_rows_fall_into_their_leaves():
    rows = np.array([[0, 2], [0, 2.5], [-1, 3], [1, 3]], np.float32)
    # 2.5 is not below 2.5; 0 is not below 0.
    assert list(stump().predict(rows)) == [10.5, 30.5, 20.5, 30.5]


def test_our_loop_agrees_with_xgboost():
    xgboost = pytest.importorskip("xgboost")
    random = np.random.default_rng(1)
    rows = random.normal(size=(3000, 5)).astype(np.float32)
    target = np.sin(rows[:, 0]) + rows[:, 1] * (rows[:, 2] > 0)
    settings = {"max_depth": 5, "eta": 0.1, "subsample": 1.0, "colsample_bytree": 1.0, "seed": 3, "tree_method": "hist",
                "max_bin": 128, "min_child_weight": 5, "nthread": 1, "objective": "reg:squarederror"}  # fmt: skip
    theirs = xgboost.train(settings, xgboost.DMatrix(rows, target, weight=np.ones(3000), nthread=1), 30)
    ours = boost(rows, target, np.ones(3000), rounds=30, depth=5, rate=0.1, sample_rows=1.0, sample_columns=1.0,
                 seed=3, threads=1)  # fmt: skip
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(xgboost.DMatrix(rows)), atol=2e-5)


def test_saved_arrays_give_the_same_trees():
    again = Trees.of_arrays(stump().arrays("x_"), "x_", features=2, where="file")
    rows = np.array([[-1, 3]], np.float32)
    assert again.predict(rows)[0] == 20.5


@pytest.mark.parametrize(
    "change",
    [
        {"x_feature": np.array([[7, 0, 0]], np.int16)},
        {"x_leaf": np.array([[1.0, np.nan, 2.0, 3.0]], np.float32)},
        {"x_threshold": np.zeros((1, 2), np.float32)},
        {"x_bias": np.array("word")},
    ],
)
def test_damaged_arrays_are_refused(change):
    with pytest.raises(InputError, match="file"):
        Trees.of_arrays({**stump().arrays("x_"), **change}, "x_", features=2, where="file")
