"""Decision trees as flat arrays: their sums, and what each feature adds along the paths."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def sum_trees(
    rows: Array,
    root: Array,
    output: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    value: Array,
    out: Array,
) -> None:
    """Add the leaf value of each row in each tree to the tree's column of ``out``.

    Tree t begins at node ``root[t]``; a node with ``feature`` -1 is a leaf. Rows at most the threshold go left.
    """
    for i in range(rows.shape[0]):
        for t in range(root.size):
            node = root[t]
            while feature[node] >= 0:
                node = left[node] if rows[i, feature[node]] <= threshold[node] else right[node]
            out[i, output[t]] += value[node]


@jit
def attribute_trees(
    rows: Array,
    root: Array,
    output: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    value: Array,
    out: Array,
) -> None:
    """Add the change of value at each split to ``out``, shape (rows, outputs, features + 1); the roots come last.

    The value of an inner node is the mean over its training rows, so a row's changes and roots sum to its leaves.
    """
    last = out.shape[2] - 1
    for i in range(rows.shape[0]):
        for t in range(root.size):
            node = root[t]
            out[i, output[t], last] += value[node]
            while feature[node] >= 0:
                child = left[node] if rows[i, feature[node]] <= threshold[node] else right[node]
                out[i, output[t], feature[node]] += value[child] - value[node]
                node = np.int64(child)
