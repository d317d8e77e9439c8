"""Splits of the nodes into train, validation and test."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray, as_integers, as_numpy
from gpatcher.errors import InputError, counted, some

if TYPE_CHECKING:
    from gpatcher.graph.graph import Graph

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes are for training, validation and test: three disjoint sets of node ids.

    Each part may be given as ids or as a boolean mask over the nodes; it is kept as sorted ids.

    Examples
    --------
    >>> Split(train=[0, 2], val=[1], test=[3, 4]).sizes
    (2, 1, 2)
    """

    train: IntArray
    val: IntArray
    test: IntArray

    def __post_init__(self) -> None:
        given = {part: as_numpy(getattr(self, part), part) for part in PARTS}
        lengths = {part: array.size for part, array in given.items() if array.dtype.kind == "b"}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the masks must have one length, that of the graph, got {lengths}")
        for part in given:
            object.__setattr__(self, part, self._ids(getattr(self, part), part))
        for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
            both = np.intersect1d(getattr(self, a), getattr(self, b), assume_unique=True)
            if both.size:
                raise InputError(
                    f"{counted(both.size, 'node is', 'nodes are')} in both {a} and {b}: "
                    f"{some(both)}; each node belongs to one part"
                )
        if not self.train.size:
            raise InputError("the split has no training node; put labelled nodes into train")

    @staticmethod
    def _ids(values: Any, part: str) -> IntArray:
        array = as_numpy(values, part)
        if array.ndim != 1:
            raise InputError(f"{part} must be one-dimensional, got shape {array.shape}; pass one Split per column")
        if array.dtype.kind == "b":
            array = np.flatnonzero(array)
        array = np.sort(as_integers(array, part)).astype(np.int64)
        repeated = np.unique(array[1:][array[1:] == array[:-1]])
        if repeated.size:
            raise InputError(f"{part} lists {counted(repeated.size, 'node')} more than once: {some(repeated)}")
        if array.size and array[0] < 0:
            raise InputError(f"{part} holds the negative node id {array[0]}")
        array.flags.writeable = False
        return array

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of nodes in train, validation and test."""
        return self.train.size, self.val.size, self.test.size

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that tell this split from any other."""
        digest = hashlib.sha256()
        for part in (self.train, self.val, self.test):
            digest.update(np.int64(part.size).tobytes())
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


_SEEDS = 10  # runs of `--splits all` where the data have one split


def stratified_split(y: npt.ArrayLike, train: float, val: float, seed: int) -> Split:
    """Split the labelled nodes at random, every class in the same shares.

    Of a class with c members about ``train * c`` go to train, ``val * c`` to validation and the others to
    test, rounded by largest remainders: over all classes each part is right to within one node. Every
    class has at least one training node, also where that asks for more than its share.

    Parameters
    ----------
    y : class of each node, shape (n,); nodes with -1 are left out
    train, val : shares of the labelled nodes; what they leave is the test part
    seed : the same seed gives the same split

    Examples
    --------
    >>> split = stratified_split([0] * 6 + [1] * 4 + [-1], train=0.5, val=0.25, seed=0)
    >>> split.sizes
    (5, 3, 2)
    """
    y = np.asarray(y)
    check_shares(train, val)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    labelled = np.flatnonzero(y >= 0)
    if not labelled.size:
        raise InputError(f"none of {y.size} nodes has a label, so there is nothing to split; pass y with class numbers")

    shuffled = np.random.default_rng(seed).permutation(labelled)
    _, member, sizes = np.unique(y[shuffled], return_inverse=True, return_counts=True)
    # a stable sort by class keeps the random order within each
    order = np.argsort(member, kind="stable")
    shuffled, member = shuffled[order], member[order]
    rank = np.arange(member.size) - (np.cumsum(sizes) - sizes)[member]

    in_train = _apportion(sizes, train, least=np.ones_like(sizes))
    # train and validation are rounded together, so that train + val = 1 leaves no test node
    in_either = _apportion(sizes, min(1.0, train + val), least=in_train)
    is_train, is_either = rank < in_train[member], rank < in_either[member]
    return Split(train=shuffled[is_train], val=shuffled[is_either & ~is_train], test=shuffled[~is_either])


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
    """Return (split, seed) of each run that ``splits`` asks for.

    Parameters
    ----------
    graph : Graph
    splits : str
        ``all`` for every split of the graph, or ten seeds where it has one split or none; or numbers such as ``0,1``.
    seed : int
        Of the first run.
    """
    several = len(graph.splits) > 1
    available = len(graph.splits) if several else _SEEDS
    numbers = list(range(available)) if splits.strip() == "all" else parse_splits(splits)
    for number in numbers:
        if number >= available:
            raise InputError(f"{graph.name} has no split {number}; its splits are 0 to {available - 1}")
    return [(number if several else 0, seed + number) for number in numbers]


def check_shares(train: float, val: float) -> None:
    """Refuse shares that are no shares: train in (0, 1], val in [0, 1 - train]."""
    if not 0 < train <= 1:
        raise InputError(f"train must lie in (0, 1], got {train}")
    if not 0 <= val <= 1 - train + 1e-9:  # 0.9 + 0.1 may exceed 1 by rounding
        raise InputError(f"val must lie in [0, 1 - train] = [0, {1 - train:.6g}], got {val}")


def _apportion(sizes: IntArray, share: float, least: IntArray) -> npt.NDArray[Any]:
    """Return whole numbers near ``share * sizes``, between ``least`` and ``sizes``, of the right total."""
    quota = share * sizes
    count: npt.NDArray[Any] = np.clip(np.floor(quota).astype(np.int64), least, sizes)
    gap = round(float(quota.sum())) - int(count.sum())
    while gap:
        step = 1 if gap > 0 else -1
        order = np.argsort(step * (count - quota), kind="stable")  # furthest from its quota first
        free = (count < sizes) if step > 0 else (count > least)
        chosen = order[free[order]][: abs(gap)]
        if not chosen.size:  # `least` asks for more than the share
            break
        count[chosen] += step
        gap -= step * chosen.size
    return count


def split_from_parts(parts: npt.NDArray[Any]) -> Split:
    """Return the split that a column of "train", "val", "test" or None names; shape (n,)."""
    return Split(*(np.flatnonzero(parts == part) for part in PARTS))


def stratified_folds(y: npt.ArrayLike, count: int, seed: int, groups: npt.NDArray[Any] | None = None) -> list[Split]:
    """Cut the labelled nodes into folds with every class in the same shares; in split i fold i is the test part.

    The next fold is the validation part and the others are for training, so that each labelled node is tested once.

    Parameters
    ----------
    y : class of each node, shape (n,); nodes with -1 are left out
    count : number of folds, at least 3
    groups : a value per node, None where unknown; the nodes of one value stay in one fold
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    y = np.asarray(y)
    if count < 3:
        raise InputError(f"folds must be at least 3, for train, validation and test, got {count}")
    labelled = np.flatnonzero(y >= 0)
    if labelled.size < count:
        raise InputError(
            f"{labelled.size} labelled nodes cannot be cut into {count} folds; label more or ask for fewer"
        )
    member = None
    if groups is not None:
        lacking = labelled[[groups[v] is None for v in labelled]]
        if lacking.size:
            raise InputError(
                f"{lacking.size} labelled nodes have no group, the first is node {lacking[0]}; fill them in"
            )
        member = np.unique([str(groups[v]) for v in labelled], return_inverse=True)[1]
        if member.max() + 1 < count:
            raise InputError(
                f"{member.max() + 1} groups cannot be cut into {count} folds; there must be as many groups"
            )
    kind = StratifiedKFold if member is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # classes with fewer members than folds are spread as far as they go
        try:
            cuts = kind(count, shuffle=True, random_state=seed).split(labelled, y[labelled], member)
            folds = [labelled[test] for _, test in cuts]
        except ValueError as error:
            raise InputError(f"the labelled nodes cannot be cut into {count} folds: {error}") from None
    splits = []
    for i in range(count):
        test, val = folds[i], folds[(i + 1) % count]
        rest = [fold for j, fold in enumerate(folds) if j not in (i, (i + 1) % count)]
        splits.append(Split(np.concatenate(rest), val, test))
    return splits


def time_split(y: npt.ArrayLike, times: npt.NDArray[Any], train: float, val: float) -> Split:
    """Train on the earliest labelled nodes, validate on the next, test on the latest.

    Nodes of one moment stay in one part, so that every training node is strictly earlier than every other one.

    Parameters
    ----------
    y : class of each node, shape (n,); nodes with -1 are left out
    times : a number per node, shape (n,), larger is later
    train, val : shares of the labelled nodes, kept as nearly as equal times allow
    """
    y, times = np.asarray(y), np.asarray(times, dtype=float)
    check_shares(train, val)
    labelled = np.flatnonzero(y >= 0)
    lacking = labelled[np.isnan(times[labelled])]
    if lacking.size:
        raise InputError(f"{lacking.size} labelled nodes have no time, the first is node {lacking[0]}; fill them in")
    moments, member, sizes = np.unique(times[labelled], return_inverse=True, return_counts=True)
    if len(moments) < 3:
        raise InputError(
            f"the labelled nodes have {len(moments)} different times; train, validation and test need three"
        )
    upto = np.cumsum(sizes)
    # the last moment of each part: nearest to its share, with one moment at least for each part
    first = int(np.clip(np.abs(upto - train * labelled.size).argmin(), 0, len(moments) - 3))
    second = int(np.clip(np.abs(upto - (train + val) * labelled.size).argmin(), first + 1, len(moments) - 2))
    return Split(labelled[member <= first], labelled[(member > first) & (member <= second)], labelled[member > second])
