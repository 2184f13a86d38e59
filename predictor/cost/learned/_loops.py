"""The compiled loop over boosted trees. Imported where it is called, because importing compiles or loads it."""

from __future__ import annotations

import numpy as np
from numba import types

from ...engine.compiled import njit

_BLOCK = 64
"""Rows whose features stay in the first-level cache while all trees pass over them."""

_FEATURES = types.Array(types.int16, 2, "C", readonly=True)
_REALS = types.Array(types.float32, 2, "C", readonly=True)


@njit(types.void(_REALS, _FEATURES, _REALS, _REALS, types.float64, types.float64[::1]))
def sum_trees(rows, feature, threshold, leaf, bias, out):
    """out[i] = bias + sum of the leaves that row i falls into; complete trees, left where feature < threshold.

    All rows of a block take a step before any takes the next: their loads do not wait for each other. Indices are
    unsigned, so that none is checked for counting from the end.
    """
    trees, inner = feature.shape
    width = np.uint64(rows.shape[1])
    depth = 0
    while (1 << depth) - 1 < inner:
        depth += 1
    values = rows.reshape(-1)
    node = np.empty(_BLOCK, np.uint64)
    total = np.empty(_BLOCK, np.float64)
    one, two, first = np.uint64(1), np.uint64(2), np.uint64(inner)
    for begin in range(0, len(rows), _BLOCK):
        count = min(len(rows) - begin, _BLOCK)
        start = np.uint64(begin) * width
        for i in range(count):
            total[i] = bias
        for tree in range(trees):
            split, bound, ends = feature[tree], threshold[tree], leaf[tree]
            for i in range(count):
                node[i] = np.uint64(0)
            for _ in range(depth):
                for i in range(count):
                    at = node[i]
                    value = values[start + np.uint64(i) * width + np.uint64(split[at])]
                    node[i] = two * at + (one if value < bound[at] else two)
            for i in range(count):
                total[i] += np.float64(ends[node[i] - first])
        for i in range(count):
            out[begin + i] = total[i]
