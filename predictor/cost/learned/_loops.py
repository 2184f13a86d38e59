"""The compiled loop over boosted trees. Imported where it is called, because importing compiles or loads it."""

from __future__ import annotations

import numpy as np
from numba import types

from ...engine.compiled import njit

_BLOCK = 256
"""Rows whose features stay in the first-level cache while all trees pass over them."""

_FEATURES = types.Array(types.int16, 2, "C", readonly=True)
_REALS = types.Array(types.float32, 2, "C", readonly=True)


@njit(types.void(_REALS, _FEATURES, _REALS, _REALS, types.float64, types.float64[::1]))
def sum_trees(rows, feature, threshold, leaf, bias, out):
    """out[i] = bias + sum of the leaves that row i falls into; complete trees, left where feature < threshold."""
    trees, inner = feature.shape
    depth = 0
    while (1 << depth) - 1 < inner:
        depth += 1
    for begin in range(0, len(rows), _BLOCK):
        end = min(len(rows), begin + _BLOCK)
        for i in range(begin, end):
            out[i] = bias
        for tree in range(trees):
            for i in range(begin, end):
                node = 0
                for _ in range(depth):
                    node = 2 * node + 2 - (rows[i, feature[tree, node]] < threshold[tree, node])
                out[i] += np.float64(leaf[tree, node - inner])
