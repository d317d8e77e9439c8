"""Random graphs with known properties: block model, minesweeper board, proper colouring, R-MAT.

Each generator returns an undirected `Graph` without self-loops and with one stratified split; the same
arguments give the same graph. `parse_source` makes one from a text such as ``csbm:phi=-0.5,n=5000``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import check_fractions, stratified_split
from gpatcher.kernels.csr import merge_rows
from gpatcher.kernels.rmat import draw_rmat

_RMAT_ROUNDS = 100  # draws of R-MAT edges before the graph counts as too dense to reach
_REJECTED = np.iinfo(np.int64).max  # key of a draw that is no edge; sorts behind every edge


def csbm(
    phi: float = 0.5,
    n: int = 5000,
    degree: float = 5.0,
    features: int = 2000,
    epsilon: float = 3.25,
    seed: int = 0,
    train: float = 0.6,
    val: float = 0.2,
) -> Graph:
    """Draw a contextual stochastic block model, its information moved between edges and features by ``phi``.

    Two classes v_i = ±1 of equal size. Nodes of one class are joined with probability c_in / n, of
    different classes with c_out / n, where c_in, c_out = d ± λ √d; features are

        b_i = √(μ / n) v_i u + z_i / √f,    u ~ N(0, I / f),  z_i ~ N(0, I).

    The dial (Chien et al., Adaptive Universal Generalized PageRank, ICLR 2021) walks along the arc
    λ² + μ² f / n = 1 + ε, on which the labels are equally hard to recover:

        λ = √(1 + ε) sin(π φ / 2),    μ = √((1 + ε) n / f) cos(π φ / 2).

    At φ = 0 only the features tell the classes, at 1 only the edges, which join like to like, and at -1
    only the edges, which join unlike nodes.

    Parameters
    ----------
    phi : φ in [-1, 1]
    n : number of nodes
    degree : d, the mean degree
    features : f, the number of features; x is float32, shape (n, f)
    epsilon : ε, how far the labels lie above the threshold of recovery
    seed, train, val : of the random numbers; shares of the split

    Examples
    --------
    >>> graph = csbm(phi=-0.5, n=400, features=50)
    >>> graph.n, graph.num_features, graph.is_directed
    (400, 50, False)
    """
    _at_least("n", n, 2)
    _at_least("features", features, 1)
    _within("phi", phi, -1, 1)
    _at_least("epsilon", epsilon, -1)
    _at_least("degree", degree, 0)
    rng = _rng(seed)
    strength = math.sqrt(1 + epsilon) * math.sin(math.pi * phi / 2)
    mu = math.sqrt((1 + epsilon) * n / features) * max(0.0, math.cos(math.pi * phi / 2))
    inside, between = _csbm_probabilities(n, degree, strength, f"phi={phi}, epsilon={epsilon}, degree={degree}")

    shuffled = rng.permutation(n)
    halves = shuffled[: n // 2], shuffled[n // 2 :]
    y = np.zeros(n, np.int64)
    y[halves[1]] = 1
    ends: list[tuple[IntArray, IntArray]] = []
    for half in halves:
        size = half.size
        pair = _distinct(rng, size * (size - 1) // 2, inside)
        # number the pairs along the diagonals of a circle: (i, i + 1), then (i, i + 2), ...; exact in integers
        ends.append((half[pair % size], half[(pair % size + 1 + pair // size) % size]))
    pair = _distinct(rng, halves[0].size * halves[1].size, between)
    ends.append((halves[0][pair // halves[1].size], halves[1][pair % halves[1].size]))

    direction = rng.standard_normal(features, dtype=np.float32) * np.float32(math.sqrt(mu / n / features))
    x = rng.standard_normal((n, features), dtype=np.float32)
    x /= np.float32(math.sqrt(features))
    x[y == 0] -= direction
    x[y == 1] += direction
    source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
    graph = Graph.from_edge_index((source, target), x=x, y=y, name="csbm").undirected()
    return _with_split(graph, train, val, seed)


def _csbm_probabilities(n: int, degree: float, strength: float, given: str) -> tuple[float, float]:
    """Return c_in / n and c_out / n; an error where one is no probability."""
    spread = math.sqrt(degree) * strength
    # rounding may carry a probability of just 0 or 1 a little beyond
    if degree - abs(spread) < -1e-9:
        which = "between" if spread > 0 else "within"
        raise InputError(
            f"{given} make the probability of an edge {which} classes negative; "
            f"raise degree to at least {math.ceil(100 * strength**2) / 100}, or lower epsilon or |phi|"
        )
    if degree + abs(spread) > n + 1e-9:
        raise InputError(
            f"{given} make the probability of an edge {(degree + abs(spread)) / n:.3g} among n={n} nodes; "
            f"raise n to at least {math.ceil(degree + abs(spread))} or lower degree"
        )
    return min(1.0, max(0.0, degree + spread) / n), min(1.0, max(0.0, degree - spread) / n)


def _distinct(rng: np.random.Generator, population: int, probability: float) -> IntArray:
    """Take each number below ``population`` with a probability, in memory of the numbers taken."""
    size = int(rng.binomial(population, probability))
    if 2 * size > population:
        return rng.permutation(population)[:size]
    taken = np.empty(0, np.int64)
    while taken.size < size:
        taken = np.unique(np.concatenate([taken, rng.integers(population, size=size - taken.size)]))
    return taken


def minesweeper(
    rows: int = 100,
    columns: int = 100,
    mines: float = 0.2,
    hidden: float = 0.5,
    seed: int = 0,
    train: float = 0.5,
    val: float = 0.25,
) -> Graph:
    """Lay a minesweeper board: cells joined by a king's move, the label says whether there is a mine.

    The features of cell v are the one-hot number of mines among its neighbours, columns 0 to 8; for the
    hidden cells these are zero and column 9 is 1. A share ``mines`` of the cells has a mine and a share
    ``hidden`` is hidden, both rounded and drawn independently of each other.

    Parameters
    ----------
    rows, columns : size of the board; node ``row * columns + column``
    mines, hidden : shares of the cells
    seed, train, val : of the random numbers; shares of the split

    Examples
    --------
    >>> graph = minesweeper(rows=10, columns=10)
    >>> graph.n, graph.m, graph.num_features, int(graph.y.sum())
    (100, 342, 10, 20)
    """
    _at_least("rows", rows, 1)
    _at_least("columns", columns, 1)
    _within("mines", mines, 0, 1)
    _within("hidden", hidden, 0, 1)
    n = rows * columns
    mined = round(mines * n)
    if not 0 < mined < n:
        raise InputError(
            f"mines={mines} puts {mined} mines on a board of {n} cells; a mine and a free cell must be there"
        )
    rng = _rng(seed)
    y = np.zeros(n, np.int64)
    y[rng.choice(n, mined, replace=False)] = 1

    cell = np.arange(n).reshape(rows, columns)
    pairs = (
        (cell[:, :-1], cell[:, 1:]),
        (cell[:-1], cell[1:]),
        (cell[:-1, :-1], cell[1:, 1:]),
        (cell[:-1, 1:], cell[1:, :-1]),
    )
    source, target = (np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))
    around = np.bincount(source, y[target], minlength=n) + np.bincount(target, y[source], minlength=n)
    x = np.zeros((n, 10), np.float32)
    x[np.arange(n), around.astype(np.int64)] = 1
    covered = rng.choice(n, round(hidden * n), replace=False)
    x[covered] = 0
    x[covered, 9] = 1
    graph = Graph.from_edge_index((source, target), x=x, y=y, classes=("free", "mine"), name="board").undirected()
    return _with_split(graph, train, val, seed)


def colouring(
    n: int = 1000, colours: int = 4, degree: int = 6, seed: int = 0, train: float = 0.6, val: float = 0.2
) -> Graph:
    """Make a connected regular graph whose classes are a proper colouring: no edge joins equal labels.

    A circulant graph, its ids shuffled: i joins i ± s (mod n) for s = 1 and further random offsets that
    are no multiples of ``colours``, and the colour of i is i mod ``colours``. There are no features.

    Every node is wholly heterophilous, so the vector H of node heterophily is the constant 1: in a
    regular graph the eigenvector of Ã of eigenvalue 1, and all energy of H lies at the lowest frequency.
    The labels do not. For the indicator z of a class no neighbour shares the class, so zᵀ Ã z = 0: the
    eigenvalues that z is made of have mean exactly 0, and as z has a part at eigenvalue 1 (its mean is
    not 0), it has parts at negative eigenvalues too. What is low-frequency here is H, not the labels.

    Parameters
    ----------
    n : number of nodes, a multiple of ``colours``
    colours : number of classes, at least 2
    degree : of every node; even
    seed, train, val : of the random numbers; shares of the split

    Examples
    --------
    >>> graph = colouring(n=12, colours=3, degree=4)
    >>> bool((graph.y[graph.neighbours(0)] != graph.y[0]).all())
    True
    """
    _at_least("colours", colours, 2)
    _at_least("n", n, 3)
    if n % colours:
        nearest = max(1, (2 * n + colours) // (2 * colours)) * colours
        raise InputError(f"n must be a multiple of colours={colours}, got {n}; the nearest is {nearest}")
    if degree < 2 or degree % 2:
        raise InputError(f"degree must be even and at least 2, got {degree}; take {max(2, degree + 1)}")
    # 2 s < n: an offset of n / 2 would reach one node from both sides
    further = np.arange(2, (n + 1) // 2)
    further = further[further % colours != 0]
    if degree > 2 + 2 * further.size:
        raise InputError(
            f"degree={degree} is more than a circulant graph of n={n} nodes in {colours} colours has; "
            f"raise n or lower degree to at most {2 + 2 * further.size}"
        )
    rng = _rng(seed)
    offsets = np.concatenate([[1], rng.choice(further, degree // 2 - 1, replace=False)])
    ids = rng.permutation(n)
    place = np.arange(n)
    y = np.empty(n, np.int64)
    y[ids] = place % colours
    target = np.concatenate([ids[(place + s) % n] for s in offsets])
    graph = Graph.from_edge_index((np.tile(ids, offsets.size), target), y=y, name="colouring").undirected()
    return _with_split(graph, train, val, seed)


def rmat(
    n: int = 100_000,
    m: int = 1_000_000,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    classes: int = 5,
    features: int = 0,
    seed: int = 0,
    train: float = 0.6,
    val: float = 0.2,
) -> Graph:
    """Draw an R-MAT graph of exactly m distinct undirected edges: few hubs, many nodes of low degree.

    For every edge the adjacency matrix is quartered again and again until one entry is left, each time
    going to a quarter with the probabilities

        [[a, b], [c, d]],    d = 1 - a - b - c.

    Self-loops, repeated edges and ids from n on are drawn again. Labels are contiguous blocks of ids,
    y_i = ⌊i · classes / n⌋. The first blocks hold the hubs, so many edges stay within a class by size
    alone; beyond that, edges favour the own class where a d > b c. With the default quarters (those of
    Graph 500) a d is a little below b c, and edges hardly depend on the class once degrees are given;
    a=0.45, b=0.15, c=0.15 makes homophilous labels. Features are Gaussian about a random mean per class.

    Parameters
    ----------
    n, m : number of nodes and of edges; any n, not only powers of two
    a, b, c : probabilities of the quarters
    classes : number of classes
    features : number of features, 0 for none; x is float32, shape (n, features)
    seed, train, val : of the random numbers; shares of the split

    Examples
    --------
    >>> graph = rmat(n=1000, m=5000)
    >>> graph.n, graph.m, graph.self_loops
    (1000, 5000, 0)
    """
    _within("n", n, 2, 2**31 - 1)
    _at_least("m", m, 1)
    _within("classes", classes, 1, n)
    _at_least("features", features, 0)
    for name, share in (("a", a), ("b", b), ("c", c)):
        _within(name, share, 0, 1)
    if a + b + c > 1 + 1e-9:
        raise InputError(f"a + b + c must be at most 1, got {a} + {b} + {c} = {a + b + c:.6g}")
    if m > n * (n - 1) // 2:
        raise InputError(
            f"m={m} edges do not fit among n={n} nodes: there are {n * (n - 1) // 2} pairs; lower m or raise n"
        )
    check_fractions(train, val)
    rng = _rng(seed)
    y = np.arange(n) * classes // n
    x = None
    if features:
        x = rng.standard_normal((n, features), dtype=np.float32)
        mean = rng.standard_normal((classes, features), dtype=np.float32)
        for label in range(classes):
            start, stop = np.searchsorted(y, [label, label + 1])
            x[start:stop] += mean[label]
    # nothing holds the pairs, nor the graph of one direction, longer than its call
    graph = Graph.from_edge_index(_rmat_pairs(rng, n, m, a, b, c), x=x, y=y, name="rmat").undirected()
    return _with_split(graph, train, val, seed)


def _rmat_pairs(rng: np.random.Generator, n: int, m: int, a: float, b: float, c: float) -> tuple[IntArray, IntArray]:
    """Return the two ends of m distinct edges, each edge once; 8 bytes an edge and nothing beside them."""
    key = np.uint64(rng.integers(2**64, dtype=np.uint64))
    spare = max(64, m // 64)  # a round draws this many more than are missing, so that the last ones come soon
    keys = np.empty(m + spare, np.int64)
    have = drawn = 0
    for _ in range(_RMAT_ROUNDS):
        new = keys[have:]
        draw_rmat(new, key, drawn, n, (n - 1).bit_length(), a, a + b, a + b + c)
        drawn += new.size
        new.sort()
        keys.sort(kind="stable")  # two sorted runs, which this sort merges in linear time
        have = keys.size - merge_rows(np.array([0, keys.size]), keys, None, False)
        have -= int(keys[have - 1] == _REJECTED)
        if have >= m:
            break
    else:
        raise InputError(
            f"m={m} distinct edges are too many for n={n}, a={a}, b={b}, c={c}: {_RMAT_ROUNDS} rounds found {have}; "
            f"lower m, raise n or take a, b, c nearer to 0.25"
        )
    # drop a random surplus: what stays of the end fills the gaps
    surplus = rng.choice(have, have - m, replace=False)
    keys[surplus[surplus < m]] = keys[np.setdiff1d(np.arange(m, have), surplus)]
    # both ends lie in one key, and which of them comes first does not matter
    ends = keys[:m].view(np.int32).reshape(m, 2)
    return ends[:, 0], ends[:, 1]


def _with_split(graph: Graph, train: float, val: float, seed: int) -> Graph:
    return graph.with_splits([stratified_split(graph.labels(), train, val, seed)])


GENERATORS: dict[str, Callable[..., Graph]] = {
    "csbm": csbm,
    "board": minesweeper,
    "colouring": colouring,
    "rmat": rmat,
}


def parse_source(source: str) -> Graph:
    """Make the graph that a text asks for: a name of `GENERATORS`, then arguments where others are wanted.

    Whole numbers may be written 1000000, 1_000_000 or 1e6. The graph is named after the text.

    Examples
    --------
    >>> parse_source("colouring:n=20,colours=2,degree=4,seed=1")
    Graph('colouring:n=20,colours=2,degree=4,seed=1': 20 nodes, 80 stored edges, 2 classes, 1 split)
    """
    name, _, text = source.partition(":")
    if name.strip() not in GENERATORS:
        raise InputError(f"unknown generator {name.strip()!r}; there are {', '.join(GENERATORS)}")
    generator = GENERATORS[name.strip()]
    parameters = inspect.signature(generator, eval_str=True).parameters
    arguments: dict[str, float] = {}
    for part in text.split(",") if text.strip() else ():
        argument, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"{source}: {part.strip()!r} is no argument; write name=value, with commas between")
        if argument not in parameters:
            raise InputError(f"{source}: {name.strip()} has no argument {argument!r}; it has {', '.join(parameters)}")
        if argument in arguments:
            raise InputError(f"{source}: {argument} is given twice; leave one out")
        arguments[argument] = _number(source, argument, value, whole=parameters[argument].annotation is int)
    return replace(generator(**arguments), name=source)


def _number(source: str, argument: str, text: str, *, whole: bool) -> float:
    kind = "a whole number" if whole else "a number"
    try:
        value = float(text)
        if not whole:
            return value
        if value.is_integer():
            # by way of float only where the text is no plain integer: a float holds 53 bits
            return int(text) if text.lstrip("+-").replace("_", "").isdecimal() else int(value)
    except ValueError:
        pass
    raise InputError(f"{source}: {argument} must be {kind}, got {text!r}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"{name} must lie in [{low}, {high}], got {value}")


def _at_least(name: str, value: float, low: float) -> None:
    if not low <= value < math.inf:
        raise InputError(f"{name} must be at least {low} and finite, got {value}")


def _rng(seed: int) -> np.random.Generator:
    _at_least("seed", seed, 0)
    return np.random.default_rng(seed)
