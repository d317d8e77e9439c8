"""Splits of the nodes into train, validation and test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.graph import Graph, InputError, IntArray, Split

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


def plan_runs(graph: Graph, splits: str, seed: int) -> list[tuple[int, int]]:
    """Return (split, seed) of each run that ``splits`` asks for: "all", or numbers such as "0,1".

    "all" is every split of the graph, or ten seeds on the one it has (made, where it has none).
    """
    several = len(graph.splits) > 1
    if splits.strip() == "all":
        count = len(graph.splits) if several else _SEEDS
        return [(i if several else 0, seed + i) for i in range(count)]
    try:
        numbers = [int(part) for part in splits.split(",")]
    except ValueError:
        raise InputError(f"splits must be 'all' or numbers such as 0,1, got {splits!r}") from None
    most = len(graph.splits) if several else _SEEDS
    for number in numbers:
        if not 0 <= number < most:
            raise InputError(f"there is no split {number}: {graph.name} has 0 to {most - 1}")
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
