"""Conversion of node indices; the conversion of other arrays is tested through `Graph`."""

import numpy as np
import pytest
import torch

from gpatcher.arrays import as_node_index
from gpatcher.errors import InputError


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([3, 0, 3], [3, 0, 3]),
        (2, [2]),
        (np.int32(2), [2]),
        ([], []),
        (range(2), [0, 1]),
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (torch.tensor([3, 1]), [3, 1]),
        ([True, False, False, True], [0, 3]),
        (torch.tensor([False, True, True, False]), [1, 2]),
        (slice(None), [0, 1, 2, 3]),
        (slice(-2, None), [2, 3]),
        (slice(None, None, -2), [3, 1]),
    ],
)
def test_ids_masks_and_slices(nodes, expected):
    index = as_node_index(nodes, 4)
    assert index.dtype == np.int64
    assert index.tolist() == expected


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 4, -1], "2 nodes are not in the graph: 4, -1; valid ids are 0 to 3"),
        (7, "1 node is not in the graph: 7; valid ids are 0 to 3"),
        (np.uint64(2**64 - 1), "1 node is not in the graph"),
        ([0.5], "nodes must be integers, got dtype float64"),
        (["a"], "nodes must be integers, got dtype <U1"),
        ([[0, 1]], r"nodes must be one-dimensional, got shape \(1, 2\)"),
        ([True, False], "the mask of nodes has length 2, but the graph has 4 nodes"),
    ],
)
def test_invalid_nodes_are_named(nodes, message):
    with pytest.raises(InputError, match=message):
        as_node_index(nodes, 4)


def test_message_names_what_the_nodes_belong_to():
    with pytest.raises(InputError, match="not in the table: 9"):
        as_node_index([9], 4, "table")
