"""Boosted regression trees as plain arrays: made by xgboost, saved without pickle, evaluated by our own loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....datasets.errors import InputError, MissingExtraError


@dataclass(frozen=True, eq=False)
class Trees:
    """Complete binary trees of one depth. Going left means feature < threshold; a row holds no NaN."""

    feature: np.ndarray
    """int16 (trees, 2^depth - 1)."""
    threshold: np.ndarray
    """float32 (trees, 2^depth - 1); infinite where a shallower tree has no such node."""
    leaf: np.ndarray
    """float32 (trees, 2^depth)."""
    bias: float

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Sum over trees for float32 C-contiguous (rows, features); float64 (rows,)."""
        from ._loops import sum_trees

        out = np.empty(len(rows))
        sum_trees(np.ascontiguousarray(rows, np.float32), self.feature, self.threshold, self.leaf, self.bias, out)
        return out

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """What `of_arrays` needs, under names that begin with `prefix`."""
        return {
            f"{prefix}feature": self.feature, f"{prefix}threshold": self.threshold, f"{prefix}leaf": self.leaf,
            f"{prefix}bias": np.array(self.bias),
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str, *, features: int, where: str) -> Trees:
        """Trees as they were saved. Raises `InputError` when the arrays do not fit each other or `features`."""
        try:
            feature, threshold, leaf = (arrays[prefix + name] for name in ("feature", "threshold", "leaf"))
            bias = float(arrays[prefix + "bias"].item())
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: is no model of trees: {error}; train it again") from None
        sound = (
            feature.dtype == np.int16 and threshold.dtype == leaf.dtype == np.float32
            and feature.ndim == 2 and feature.shape == threshold.shape
            and leaf.shape == (len(feature), feature.shape[1] + 1) and (feature.shape[1] + 1).bit_count() == 1
            and (feature >= 0).all() and (feature < features).all()
            and np.isfinite(leaf).all() and np.isfinite(bias) and not np.isnan(threshold).any()
        )  # fmt: skip
        if not sound:
            raise InputError(f"{where}: trees {prefix!r} are damaged or of another version; train them again")
        return cls(np.ascontiguousarray(feature), np.ascontiguousarray(threshold), np.ascontiguousarray(leaf), bias)


def boost(
    rows: np.ndarray, target: np.ndarray, weight: np.ndarray, *, rounds: int = 300, depth: int = 6, rate: float = 0.06,
    sample_rows: float = 0.7, sample_columns: float = 0.6, seed: int = 0, threads: int = 2,
) -> Trees:  # fmt: skip
    """Fit by xgboost (histograms, squared error in log space). `rows` float32 (rows, features), no NaN.

    Raises `MissingExtraError` without xgboost.
    """
    try:
        import xgboost
    except ImportError:
        raise MissingExtraError("xgboost", extra="fit", purpose="fitting learned prices") from None
    settings = {
        "max_depth": depth, "eta": rate, "subsample": sample_rows, "colsample_bytree": sample_columns, "seed": seed,
        "tree_method": "hist", "max_bin": 128, "min_child_weight": 5, "nthread": threads,
        "objective": "reg:squarederror",
    }  # fmt: skip
    booster = xgboost.train(settings, xgboost.DMatrix(rows, target, weight=weight, nthread=threads), rounds)
    return _of_document(json.loads(booster.save_raw("json")), depth)


def _of_document(document: dict[str, Any], depth: int) -> Trees:
    """Complete trees from xgboost's JSON model."""
    learner = document["learner"]
    bias = float(str(learner["learner_model_param"]["base_score"]).strip("[]"))
    grown = learner["gradient_booster"]["model"]["trees"]
    inner = (1 << depth) - 1
    feature = np.zeros((len(grown), inner), np.int16)
    threshold = np.full((len(grown), inner), np.inf, np.float32)
    leaf = np.zeros((len(grown), inner + 1), np.float32)
    for index, tree in enumerate(grown):
        left, right = tree["left_children"], tree["right_children"]
        stack = [(0, 0, 0)]  # node of xgboost's, node of ours, its depth
        while stack:
            theirs, ours, level = stack.pop()
            if left[theirs] < 0:
                width = 1 << (depth - level)
                first = (ours + 1) * width - 1 - inner
                leaf[index, first : first + width] = tree["split_conditions"][theirs]
                continue
            feature[index, ours] = tree["split_indices"][theirs]
            threshold[index, ours] = tree["split_conditions"][theirs]
            stack.append((left[theirs], 2 * ours + 1, level + 1))
            stack.append((right[theirs], 2 * ours + 2, level + 1))
    return Trees(feature, threshold, leaf, bias)
