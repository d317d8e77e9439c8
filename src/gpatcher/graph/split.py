"""Splits of the nodes into train, validation and test."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import BoolArray, IntArray, as_integers, as_numpy
from gpatcher.errors import InputError, check_at_least, counted, some

if TYPE_CHECKING:
    from gpatcher.graph.graph import Graph

PARTS = ("train", "val", "test")
_QUANTILES = 10  # of numbers to predict, kept in proportion by splits
_SEEDS = 10  # runs of `--splits all` on data with at most one split


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test nodes: three disjoint sets of node ids.

    Parameters
    ----------
    train, val, test : array-like or tensor
        Node ids, or boolean masks of one length; stored as read-only int64 ids in ascending order.

    Examples
    --------
    >>> Split(train=[0, 2], val=[1], test=[3, 4]).sizes
    (2, 1, 2)
    """

    train: IntArray
    val: IntArray
    test: IntArray

    def __post_init__(self) -> None:
        arrays = {part: as_numpy(getattr(self, part), part) for part in PARTS}
        lengths = {part: array.size for part, array in arrays.items() if array.dtype.kind == "b"}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the masks must have equal lengths, the number of nodes, got {lengths}")
        for part, array in arrays.items():
            object.__setattr__(self, part, _node_ids(array, part))
        for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
            both = np.intersect1d(getattr(self, a), getattr(self, b), assume_unique=True)
            if both.size:
                raise InputError(
                    f"{counted(both.size, 'node is', 'nodes are')} in both {a} and {b}: "
                    f"{some(both)}; each node belongs to one part"
                )
        if not self.train.size:
            raise InputError("the split has no training node; put labelled nodes into train")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of nodes in train, validation and test."""
        return self.train.size, self.val.size, self.test.size

    @cached_property
    def hash(self) -> str:
        """Hash of the three parts, 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for part in (self.train, self.val, self.test):
            digest.update(np.int64(part.size).tobytes())
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


def _node_ids(array: npt.NDArray[Any], part: str) -> IntArray:
    """Return the ids or the mask of a part as sorted ids without duplicates, read-only."""
    if array.ndim != 1:
        raise InputError(f"{part} must be one-dimensional, got shape {array.shape}; pass one Split per column")
    if array.dtype.kind == "b":
        array = np.flatnonzero(array)
    ids = np.sort(as_integers(array, part)).astype(np.int64)
    duplicates = np.unique(ids[1:][ids[1:] == ids[:-1]])
    if duplicates.size:
        raise InputError(f"{part} lists {counted(duplicates.size, 'node')} more than once: {some(duplicates)}")
    if ids.size and ids[0] < 0:
        raise InputError(f"{part} contains the negative node id {ids[0]}")
    ids.flags.writeable = False
    return ids


def is_labelled(y: npt.NDArray[Any]) -> BoolArray:
    """Return which nodes have a label: a class from 0 on, or a number that is not NaN."""
    return ~np.isnan(y) if y.dtype.kind == "f" else y >= 0


def strata(y: npt.ArrayLike) -> IntArray:
    """Return the groups that splits keep in proportion: the classes, or ten quantiles of numbers; -1 if unlabelled."""
    y = np.asarray(y)
    if y.dtype.kind != "f":
        return y
    known = is_labelled(y)
    groups = np.full(y.size, -1)
    borders = np.quantile(y[known], np.linspace(0, 1, _QUANTILES + 1)[1:-1]) if known.any() else []
    groups[known] = np.searchsorted(borders, y[known], side="right")
    return groups


def stratified_split(y: npt.ArrayLike, train: float, val: float, seed: int) -> Split:
    """Split the labelled nodes at random, with the same fractions of every class.

    Of a class with c members about ``train * c`` are training nodes and ``val * c`` validation nodes; the others are
    test nodes. Counts are rounded by largest remainders, so that the size of each part is exact to within one node.
    Every class has at least one training node, even if that exceeds its fraction.

    Parameters
    ----------
    y : array-like, shape (n,)
        Class of each node, -1 if unlabelled; or a number, NaN if unlabelled, whose quantiles are then the classes.
        Unlabelled nodes are in no part.
    train, val : float
        Fractions of the labelled nodes; the rest are test nodes.
    seed : int
        Seed of the random generator.

    Examples
    --------
    >>> split = stratified_split([0] * 6 + [1] * 4 + [-1], train=0.5, val=0.25, seed=0)
    >>> split.sizes
    (5, 3, 2)
    """
    y = strata(y)
    check_fractions(train, val)
    check_at_least(0, seed=seed)
    labelled = np.flatnonzero(y >= 0)
    if not labelled.size:
        raise InputError(f"none of {y.size} nodes has a label, so nothing can be split; pass y with classes from 0 on")

    shuffled = np.random.default_rng(seed).permutation(labelled)
    _, member, sizes = np.unique(y[shuffled], return_inverse=True, return_counts=True)
    # a stable sort by class keeps the random order within each
    order = np.argsort(member, kind="stable")
    shuffled, member = shuffled[order], member[order]
    rank = np.arange(member.size) - (np.cumsum(sizes) - sizes)[member]

    in_train = _apportion(sizes, train, least=np.ones_like(sizes))
    # train and validation are rounded together, so that train + val = 1 leaves no test node
    before_test = _apportion(sizes, min(1.0, train + val), least=in_train)
    is_train, is_test = rank < in_train[member], rank >= before_test[member]
    return Split(train=shuffled[is_train], val=shuffled[~is_train & ~is_test], test=shuffled[is_test])


def parse_splits(text: str) -> list[int]:
    """Return the numbers in a text such as ``0,1``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"splits must be 'all' or numbers such as 0,1, got {text!r}")
    return numbers


def plan_runs(graph: Graph, splits: str, seed: int) -> list[tuple[int, int]]:
    """Return (split, seed) of each run in ``splits``, which is ``all`` or numbers such as ``0,1``.

    ``all`` is every split of the graph, or ten seeds if it has at most one split; ``seed`` is that of the first run.
    """
    several = len(graph.splits) > 1
    available = len(graph.splits) if several else _SEEDS
    numbers = list(range(available)) if splits.strip() == "all" else parse_splits(splits)
    for number in numbers:
        if number >= available:
            raise InputError(f"{graph.name} has no split {number}; its splits are 0 to {available - 1}")
    return [(number if several else 0, seed + number) for number in numbers]


def check_fractions(train: float, val: float) -> None:
    """Raise an error unless train lies in (0, 1] and val in [0, 1 - train]."""
    if not 0 < train <= 1:
        raise InputError(f"train must lie in (0, 1], got {train}")
    if not 0 <= val <= 1 - train + 1e-9:  # 0.9 + 0.1 may exceed 1 by rounding
        raise InputError(f"val must lie in [0, 1 - train] = [0, {1 - train:.6g}], got {val}")


def _apportion(sizes: IntArray, fraction: float, least: IntArray) -> npt.NDArray[Any]:
    """Round ``fraction * sizes`` to integers between ``least`` and ``sizes`` that add up to the rounded total."""
    quota = fraction * sizes
    count: npt.NDArray[Any] = np.clip(np.floor(quota).astype(np.int64), least, sizes)
    gap = round(float(quota.sum())) - int(count.sum())
    while gap:
        step = 1 if gap > 0 else -1
        order = np.argsort(step * (count - quota), kind="stable")  # farthest from its quota first
        free = (count < sizes) if step > 0 else (count > least)
        chosen = order[free[order]][: abs(gap)]
        if not chosen.size:  # `least` exceeds the fraction
            break
        count[chosen] += step
        gap -= step * chosen.size
    return count


def split_from_parts(parts: npt.NDArray[Any]) -> Split:
    """Return the split given by an array of "train", "val", "test" or None, shape (n,)."""
    return Split(*(np.flatnonzero(parts == part) for part in PARTS))


def stratified_folds(y: npt.ArrayLike, count: int, seed: int, groups: npt.NDArray[Any] | None = None) -> list[Split]:
    """Divide the labelled nodes into at least 3 folds, with the same fractions of every class.

    In split i, fold i is the test part, the next fold the validation part, and the others are the training part, so
    that each labelled node is tested once. The nodes of a group, if there are ``groups``, stay in one fold.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    y = strata(y)
    if count < 3:
        raise InputError(f"folds must be at least 3, for train, validation and test, got {count}")
    labelled = np.flatnonzero(y >= 0)
    if labelled.size < count:
        raise InputError(
            f"{labelled.size} labelled nodes cannot be divided into {count} folds; label more nodes or use fewer folds"
        )
    member = None
    if groups is not None:
        missing = labelled[[groups[v] is None for v in labelled]]
        if missing.size:
            raise InputError(
                f"{missing.size} labelled nodes have no group, the first is node {missing[0]}; assign them to groups"
            )
        member = np.unique([str(groups[v]) for v in labelled], return_inverse=True)[1]
        if member.max() + 1 < count:
            raise InputError(
                f"{member.max() + 1} groups cannot be divided into {count} folds; use at most as many folds as groups"
            )
    splitter = StratifiedKFold if member is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        # a class with fewer members than folds cannot be in every fold
        warnings.simplefilter("ignore", UserWarning)
        try:
            parts = splitter(count, shuffle=True, random_state=seed).split(labelled, y[labelled], member)
            folds = [labelled[test] for _, test in parts]
        except ValueError as error:
            raise InputError(f"the labelled nodes cannot be divided into {count} folds: {error}") from None
    rotated = (folds[i:] + folds[:i] for i in range(count))
    return [Split(np.concatenate(train), val, test) for test, val, *train in rotated]


def time_split(y: npt.ArrayLike, times: npt.NDArray[Any], train: float, val: float) -> Split:
    """Train on the earliest labelled nodes, validate on the next and test on the latest.

    Nodes with equal times stay in one part, so that every training node is strictly earlier than all others; the
    fractions are met as closely as that allows.
    """
    times = np.asarray(times, dtype=float)
    check_fractions(train, val)
    labelled = np.flatnonzero(is_labelled(np.asarray(y)))
    missing = labelled[np.isnan(times[labelled])]
    if missing.size:
        raise InputError(
            f"{missing.size} labelled nodes have no time, the first is node {missing[0]}; fill in the missing times"
        )
    moments, member, sizes = np.unique(times[labelled], return_inverse=True, return_counts=True)
    if len(moments) < 3:
        raise InputError(
            f"the labelled nodes have {len(moments)} different times; train, validation and test need three"
        )
    total = np.cumsum(sizes)
    # index of the last time in train and in validation: closest to the fraction, with at least one time per part
    first = int(np.clip(np.abs(total - train * labelled.size).argmin(), 0, len(moments) - 3))
    second = int(np.clip(np.abs(total - (train + val) * labelled.size).argmin(), first + 1, len(moments) - 2))
    return Split(labelled[member <= first], labelled[(member > first) & (member <= second)], labelled[member > second])
