"""Patches as a container, the module that serves fixed patches, and what every extractor checks."""

import numpy as np
import pytest
import torch

from gpatcher.errors import InputError
from gpatcher.patches import EXTRACTORS, PPR, extract_patches
from gpatcher.patches.base import FixedPatches, Patches, positions


@pytest.fixture
def patches():
    index = np.array([[0, 4, 2], [1, 9, -1], [2, -1, -1]], np.int32)
    return Patches(index, np.where(index >= 0, 0.5, 0).astype(np.float32))


def test_patches_of_some_nodes(graphs):
    patches = extract_patches(graphs.make("connected"), PPR(size=4))
    part = patches[[3, 1]]
    assert isinstance(part, Patches)
    assert part.index[:, 0].tolist() == [3, 1]
    np.testing.assert_array_equal(part.score, patches.score[[3, 1]])


def test_size_and_bytes(patches):
    assert patches.size == 3
    assert patches.nbytes == 2 * 9 * 4


def test_empty_patches_have_padding_only():
    empty = Patches.empty(4, 2)
    assert (empty.index == -1).all()
    assert (empty.score == 0).all()
    assert (empty.index.dtype, empty.score.dtype) == (np.int32, np.float32)
    assert empty.index.shape == empty.score.shape == (4, 2)


def test_members_are_distinct_and_without_padding(patches):
    assert patches.members().tolist() == [0, 1, 2, 4, 9]
    assert Patches.empty(2, 2).members().tolist() == []


def test_relabelling_by_position_keeps_padding(patches):
    relabelled = patches.relabel(patches.members())
    assert relabelled.index.tolist() == [[0, 3, 2], [1, 4, -1], [2, -1, -1]]
    assert relabelled.index.dtype == np.int32
    np.testing.assert_array_equal(relabelled.score, patches.score)
    assert positions(np.array([7, -1]), np.array([3, 7])).tolist() == [1, -1]


def test_fixed_patches_serve_rows_and_have_nothing_to_learn(patches):
    source = patches.source()
    assert isinstance(source, FixedPatches)
    assert not source.learned
    assert source.size == 3
    index, score = source(torch.tensor([2, 0, 2]))
    assert index.dtype == torch.int64
    np.testing.assert_array_equal(index, patches.index[[2, 0, 2]])
    np.testing.assert_array_equal(score, patches.score[[2, 0, 2]])
    source.reselect()
    np.testing.assert_array_equal(source.patches().index, patches.index)
    assert list(source.parameters()) == []
    assert source.state_dict() == {}, "patches are made again, not saved with the weights"


@pytest.mark.parametrize("size", [0, -3, 2.5, float("nan")])
@pytest.mark.parametrize("name", EXTRACTORS)
def test_sizes_below_one_or_not_integer_are_refused(name, size):
    with pytest.raises(InputError, match=f"size must be an integer of at least 1, got {size}"):
        EXTRACTORS[name](size=size)
