import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.errors import InputError
from gpatcher.graph.split import split_from_parts, stratified_folds, stratified_split, time_split

labels = st.lists(st.integers(-1, 6), min_size=1, max_size=80).filter(lambda y: max(y) >= 0)
percentages = st.tuples(st.integers(1, 100), st.integers(0, 100)).filter(lambda p: sum(p) <= 100)


@settings(deadline=None, max_examples=100)
@given(labels, percentages, st.integers(0, 5))
def test_parts_are_disjoint_and_cover_the_labelled_nodes(y, percent, seed):
    split = stratified_split(y, percent[0] / 100, percent[1] / 100, seed)
    nodes = np.concatenate([split.train, split.val, split.test])
    assert np.sort(nodes).tolist() == np.flatnonzero(np.array(y) >= 0).tolist()
    assert set(np.array(y)[split.train]) == set(y) - {-1}


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), percentages)
def test_sizes_are_right_within_one_node(sizes, percent):
    train, val = percent[0] / 100, percent[1] / 100
    y = np.repeat(np.arange(len(sizes)), sizes)
    split = stratified_split(y, train, val, 0)
    more_classes_than_nodes = train * len(y) < len(sizes)
    for part, fraction in ((split.train, train), (split.val, val), (split.test, 1 - train - val)):
        if not more_classes_than_nodes:
            assert abs(part.size - fraction * len(y)) <= 1 + 1e-9
    assert abs(split.train.size - max(len(sizes), train * len(y))) <= 0.5 + 1e-9


def test_fractions_of_large_classes_are_exact():
    y = np.repeat([0, 1, 2], [1000, 500, 10])
    split = stratified_split(y, 0.6, 0.2, 0)
    assert np.bincount(y[split.train]).tolist() == [600, 300, 6]
    assert np.bincount(y[split.val]).tolist() == [200, 100, 2]
    assert np.bincount(y[split.test]).tolist() == [200, 100, 2]


def test_classes_of_one_node_are_in_train():
    y = np.array([0] * 100 + [1, 2, 3, 4, 5])
    split = stratified_split(y, 0.6, 0.2, 0)
    assert set(range(100, 105)) <= set(split.train.tolist())
    assert split.sizes == (63, 21, 21)


def test_fractions_that_sum_to_one_leave_no_test_node():
    for n in range(2, 30):
        assert stratified_split(np.arange(n) % 2, 0.7, 0.3, 0).test.size == 0


def test_split_depends_on_the_seed_alone():
    y = np.arange(100) % 3
    assert stratified_split(y, 0.5, 0.2, 4).hash == stratified_split(y, 0.5, 0.2, 4).hash
    assert stratified_split(y, 0.5, 0.2, 4).hash != stratified_split(y, 0.5, 0.2, 5).hash


def test_every_node_of_a_class_is_equally_likely_to_train():
    y = np.repeat([0, 1], 10)
    count = np.zeros(20)
    for seed in range(400):
        count[stratified_split(y, 0.5, 0.2, seed).train] += 1
    assert abs(count - 200).max() < 5 * np.sqrt(400 * 0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], 0.0, 0.2, 0), r"train must lie in \(0, 1\], got 0.0"),
        (([0, 1], float("nan"), 0.2, 0), "train must lie in"),
        (([0, 1], 0.6, 0.5, 0), r"val must lie in \[0, 1 - train\] = \[0, 0.4\], got 0.5"),
        (([0, 1], 0.6, -0.1, 0), "val must lie in"),
        (([-1, -1], 0.6, 0.2, 0), "none of 2 nodes has a label"),
        (([0, 1], 0.6, 0.2, -3), "seed must be at least 0, got -3"),
    ],
)
def test_errors_name_the_value(arguments, message):
    with pytest.raises(InputError, match=message):
        stratified_split(*arguments)


# ------------------------------------------------------------------------------------------ folds, groups, time


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-1, 3), min_size=10, max_size=60), st.integers(3, 5), st.integers(0, 3))
def test_folds_test_every_labelled_node_once(y, count, seed):
    labelled = np.flatnonzero(np.array(y) >= 0)
    sizes = np.bincount(np.array(y)[labelled])
    if sizes.max(initial=0) < count:
        with pytest.raises(InputError, match="folds"):
            stratified_folds(y, count, seed)
        return
    splits = stratified_folds(y, count, seed)
    assert len(splits) == count
    for part in ("test", "val"):
        nodes = np.concatenate([getattr(split, part) for split in splits])
        assert np.sort(nodes).tolist() == labelled.tolist()
    for split in splits:
        assert sum(split.sizes) == labelled.size


def test_folds_have_the_class_fractions_of_the_graph():
    y = np.repeat([0, 1], [90, 10])
    for split in stratified_folds(y, 5, 0):
        assert np.bincount(y[split.test]).tolist() == [18, 2]
        assert np.bincount(y[split.train]).tolist() == [54, 6]


def test_group_is_in_one_part():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    groups = np.array([f"g{i}" for i in rng.integers(0, 20, 200)], dtype=object)
    for split in stratified_folds(y, 4, 0, groups):
        parts = [set(groups[getattr(split, part)]) for part in ("train", "val", "test")]
        assert not parts[0] & parts[1]
        assert not parts[0] & parts[2]
        assert not parts[1] & parts[2]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 9)), min_size=1, max_size=60))
def test_train_is_before_validation_and_validation_before_test(rows):
    y, times = (np.array(column) for column in zip(*rows, strict=True))
    if len(set(times[y >= 0])) < 3:
        with pytest.raises(InputError, match="different times"):
            time_split(y, times, 0.6, 0.2)
        return
    split = time_split(y, times, 0.6, 0.2)
    assert times[split.train].max() < times[split.val].min()
    assert times[split.val].max() < times[split.test].min()
    assert sum(split.sizes) == (y >= 0).sum()


def test_fractions_of_a_time_split():
    assert time_split(np.zeros(100, int), np.random.default_rng(0).permutation(100), 0.6, 0.2).sizes == (60, 20, 20)


def test_split_from_parts():
    split = split_from_parts(np.array(["test", "train", None, "val", "train"], dtype=object))
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([1, 4], [3], [0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stratified_folds([0, 1] * 5, 2, 0), "folds must be at least 3, .* got 2"),
        (lambda: stratified_folds([0, 1], 3, 0), "2 labelled nodes cannot be divided into 3 folds"),
        (
            lambda: stratified_folds([0] * 9, 3, 0, np.array(["a"] * 8 + [None], object)),
            "1 labelled .* no group.*node 8",
        ),
        (lambda: stratified_folds([0] * 9, 3, 0, np.array(["a", "b", "b"] * 3, object)), "2 groups .* 3 folds"),
        (lambda: time_split([0, 0, 0], np.array([1, np.nan, 2]), 0.6, 0.2), "1 labelled nodes have no time.*node 1"),
    ],
)
def test_fold_and_time_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()
