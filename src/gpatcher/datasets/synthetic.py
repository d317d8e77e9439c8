"""Random graphs with known properties: block model, minesweeper board, proper colouring, monophily, R-MAT.

Each generator returns an undirected `Graph` without self-loops and with one stratified split, of which ``train`` and
``val`` are the fractions. The same arguments, ``seed`` among them, give the same graph.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, check_memory
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import check_fractions, stratified_split
from gpatcher.kernels.csr import merge_rows
from gpatcher.kernels.rmat import draw_rmat

_RMAT_ROUNDS = 100  # rounds of drawing missing R-MAT edges before the graph is refused as too dense
_REJECTED = np.iinfo(np.int64).max  # key of a rejected draw; sorts after every edge


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
    """Draw a contextual stochastic block model; ``phi`` moves the information between edges and features.

    There are two classes v_i = ±1 of equal size. Two nodes of the same class are joined with probability c_in / n, of
    different classes with c_out / n, where c_in, c_out = d ± λ √d. The features are

        b_i = √(μ / n) v_i u + z_i / √f,    u ~ N(0, I / f),  z_i ~ N(0, I).

    φ (Chien et al., Adaptive Universal Generalized PageRank, ICLR 2021) parametrises the arc
    λ² + μ² f / n = 1 + ε, on which the labels are equally hard to recover:

        λ = √(1 + ε) sin(π φ / 2),    μ = √((1 + ε) n / f) cos(π φ / 2).

    At φ = 0 only the features are informative; at φ = ±1 only the edges are, homophilous at 1 and heterophilous at -1.

    Parameters
    ----------
    phi : float
        φ, in [-1, 1].
    n : int
        Number of nodes.
    degree : float
        Mean degree d.
    features : int
        Number of features f; x is float32, shape (n, f).
    epsilon : float
        ε, the distance of the labels from the recovery threshold.

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
    within, between = _csbm_probabilities(n, degree, strength, f"phi={phi}, epsilon={epsilon}, degree={degree}")

    shuffled = rng.permutation(n)
    halves = shuffled[: n // 2], shuffled[n // 2 :]
    y = np.zeros(n, np.int64)
    y[halves[1]] = 1
    edges: list[tuple[IntArray, IntArray]] = []
    for half in halves:
        size = half.size
        pair = _distinct(rng, size * (size - 1) // 2, within)
        # enumerate the pairs by their distance on a circle: (i, i + 1), then (i, i + 2), ...; exact in integers
        edges.append((half[pair % size], half[(pair % size + 1 + pair // size) % size]))
    pair = _distinct(rng, halves[0].size * halves[1].size, between)
    edges.append((halves[0][pair // halves[1].size], halves[1][pair % halves[1].size]))

    direction = rng.standard_normal(features, dtype=np.float32) * np.float32(math.sqrt(mu / n / features))
    x = rng.standard_normal((n, features), dtype=np.float32)
    x /= np.float32(math.sqrt(features))
    x[y == 0] -= direction
    x[y == 1] += direction
    source, target = (np.concatenate(side) for side in zip(*edges, strict=True))
    graph = Graph.from_edge_index((source, target), x=x, y=y, name="csbm").undirected()
    return _with_split(graph, train, val, seed)


def _csbm_probabilities(n: int, degree: float, strength: float, arguments: str) -> tuple[float, float]:
    """Return c_in / n and c_out / n; an error where one is not a probability."""
    spread = math.sqrt(degree) * strength
    # a probability of exactly 0 or 1 may exceed the interval by rounding
    if degree - abs(spread) < -1e-9:
        which = "between" if spread > 0 else "within"
        raise InputError(
            f"{arguments} make the probability of an edge {which} classes negative; "
            f"raise degree to at least {math.ceil(100 * strength**2) / 100}, or lower epsilon or |phi|"
        )
    if degree + abs(spread) > n + 1e-9:
        raise InputError(
            f"{arguments} make the probability of an edge {(degree + abs(spread)) / n:.3g} among n={n} nodes; "
            f"raise n to at least {math.ceil(degree + abs(spread))} or lower degree"
        )
    return min(1.0, max(0.0, degree + spread) / n), min(1.0, max(0.0, degree - spread) / n)


def _distinct(rng: np.random.Generator, population: int, probability: float) -> IntArray:
    """Sample each integer below ``population`` with a probability, in memory proportional to the sample."""
    size = int(rng.binomial(population, probability))
    if 2 * size > population:
        return rng.permutation(population)[:size]
    sample = np.empty(0, np.int64)
    while sample.size < size:
        sample = np.unique(np.concatenate([sample, rng.integers(population, size=size - sample.size)]))
    return sample


def minesweeper(
    rows: int = 100,
    columns: int = 100,
    mines: float = 0.2,
    hidden: float = 0.5,
    seed: int = 0,
    train: float = 0.5,
    val: float = 0.25,
) -> Graph:
    """Draw a minesweeper board: cells are joined to the up to eight around them, the label marks the mines.

    The cell at (row, column) is node ``row * columns + column``. Its features are the one-hot number of mines among its
    neighbours, in columns 0 to 8. For a hidden cell they are zero and column 9 is 1. ``mines`` and ``hidden`` are
    fractions of the cells, drawn independently of each other.

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
            f"mines={mines} puts {mined} mines on a board of {n} cells; at least one mine and one free cell are needed"
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
    """Draw a connected regular graph whose classes are a proper colouring: no edge joins equal labels.

    A circulant graph with shuffled ids: i is adjacent to i ± s (mod n) for s = 1 and further random offsets that are
    not multiples of ``colours``, and the colour of i is i mod ``colours``. There are no features. ``n`` is a multiple
    of ``colours``, and ``degree`` is even.

    All neighbours of every node differ from it, so the vector H of node heterophily is constant. In a regular graph the
    constant vector is the eigenvector of Ã at eigenvalue 1: all energy of H lies at the lowest frequency. The energy of
    the labels does not. For the indicator z of a class zᵀ Ã z = 0, so the mean eigenvalue of z, weighted by energy, is
    0. As z has energy at eigenvalue 1 (its mean is not 0), it has energy at negative eigenvalues too.

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
    # 2 s < n: an offset of n / 2 reaches the same node in both directions
    further = np.arange(2, (n + 1) // 2)
    further = further[further % colours != 0]
    if degree > 2 + 2 * further.size:
        raise InputError(
            f"degree={degree} is too high for a circulant graph of n={n} nodes in {colours} colours; "
            f"raise n or lower degree to at most {2 + 2 * further.size}"
        )
    rng = _rng(seed)
    offsets = np.concatenate([[1], rng.choice(further, degree // 2 - 1, replace=False)])
    ids = rng.permutation(n)
    position = np.arange(n)
    y = np.empty(n, np.int64)
    y[ids] = position % colours
    target = np.concatenate([ids[(position + s) % n] for s in offsets])
    graph = Graph.from_edge_index((np.tile(ids, offsets.size), target), y=y, name="colouring").undirected()
    return _with_split(graph, train, val, seed)


def monophily(
    n: int = 1000,
    degree: float = 20.0,
    spread: float = 0.2,
    features: int = 8,
    signal: float = 0.1,
    seed: int = 0,
    train: float = 0.6,
    val: float = 0.2,
) -> Graph:
    """Draw a graph in which neighbours are neither alike nor unlike, but nodes with a common neighbour are alike.

    There are two classes of equal size. Node i prefers class 1 by s_i ~ Beta(κ, κ), whatever its own class, and has an
    activity a_i drawn from a Pareto distribution. The pair (i, j) is drawn with probability

        P(i, j) ∝ a_i a_j s_i(y_j) s_j(y_i),    s_i(1) = s_i,  s_i(0) = 1 - s_i.

    So a neighbour's class tells nothing, and who the neighbour is does, as for gender in friendship networks
    (Altenburger and Ugander, Monophily in social networks, 2018).

    Parameters
    ----------
    n : int
        Number of nodes.
    degree : float
        Mean degree.
    spread : float
        Standard deviation of the preferences, in (0, 0.5), which sets κ.
    features : int
        Gaussian features of deviation 1, with the mean ± ``signal`` in the two classes.
    signal : float
    seed : int
    train, val : float

    Examples
    --------
    >>> graph = monophily(n=200, degree=10)
    >>> graph.n, graph.m, graph.x.shape
    (200, 1000, (200, 8))
    """
    _at_least("n", n, 4)
    _at_least("features", features, 1)
    if not 0 < spread < 0.5:
        raise InputError(f"spread must lie in (0, 0.5), got {spread}")
    if not 0 < degree <= (n - 1) / 4:
        raise InputError(f"degree must lie in (0, (n - 1) / 4 = {(n - 1) / 4:g}], got {degree}; raise n or lower it")
    rng = _rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    kappa = (1 / (4 * spread**2) - 1) / 2
    preference = rng.beta(kappa, kappa, n)
    activity = np.minimum(rng.pareto(2.5, n) + 0.3, 5.0)
    m = round(n * degree / 2)
    keys = np.empty(0, np.int64)
    while keys.size < m:
        i, j = rng.choice(n, (2, 8 * m), p=activity / activity.sum())
        chance = np.where(y[j], preference[i], 1 - preference[i]) * np.where(y[i], preference[j], 1 - preference[j])
        kept = (i != j) & (rng.random(i.size) < chance)
        drawn = np.minimum(i, j)[kept] * n + np.maximum(i, j)[kept]
        fresh = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        keys = np.concatenate([keys, fresh[~np.isin(fresh, keys)]])[:m]
    x = rng.standard_normal((n, features), dtype=np.float32) + np.float32(signal) * (2 * y[:, None] - 1)
    graph = Graph.from_edge_index((keys // n, keys % n), x=x.astype(np.float32), y=y, name="monophily").undirected()
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

    An edge is drawn by dividing the adjacency matrix into quadrants until one entry is left, choosing a quadrant at
    each step with the probabilities

        [[a, b], [c, d]],    d = 1 - a - b - c.

    Self-loops, duplicate edges and ids of n or more are drawn again. Labels are contiguous blocks of ids, y_i = ⌊i ·
    classes / n⌋. The first blocks hold the hubs, so many edges stay within a class because of the degrees alone; beyond
    that, edges favour the same class where a d > b c. With the default probabilities (those of Graph 500) a d is
    slightly below b c, and edges hardly depend on the class once degrees are accounted for; a=0.45, b=0.15, c=0.15
    gives homophilous labels. Features, none by default, are Gaussian around a random mean per class.

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
    for name, probability in (("a", a), ("b", b), ("c", c)):
        _within(name, probability, 0, 1)
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
    # no variable keeps the pairs or the directed graph alive after the call that uses them
    graph = Graph.from_edge_index(_rmat_pairs(rng, n, m, a, b, c), x=x, y=y, name="rmat").undirected()
    return _with_split(graph, train, val, seed)


def _rmat_pairs(rng: np.random.Generator, n: int, m: int, a: float, b: float, c: float) -> tuple[IntArray, IntArray]:
    """Return the endpoints of m distinct edges, each edge once, in 8 bytes per edge without further arrays."""
    key = np.uint64(rng.integers(2**64, dtype=np.uint64))
    spare = max(64, m // 64)  # each round draws this many more than are missing, to need few rounds
    keys = np.empty(m + spare, np.int64)
    distinct = drawn = 0
    for _ in range(_RMAT_ROUNDS):
        new = keys[distinct:]
        draw_rmat(new, key, drawn, n, (n - 1).bit_length(), a, a + b, a + b + c)
        drawn += new.size
        new.sort()
        keys.sort(kind="stable")  # two sorted runs, which this sort merges in linear time
        distinct = keys.size - merge_rows(np.array([0, keys.size]), keys, None, False)
        distinct -= int(keys[distinct - 1] == _REJECTED)
        if distinct >= m:
            break
    else:
        raise InputError(
            f"m={m} distinct edges are too many for n={n}, a={a}, b={b}, c={c}: {_RMAT_ROUNDS} rounds gave {distinct}; "
            f"lower m, raise n or choose a, b, c closer to 0.25"
        )
    # drop a random surplus: the keys from m on that stay fill the gaps
    surplus = rng.choice(distinct, distinct - m, replace=False)
    keys[surplus[surplus < m]] = keys[np.setdiff1d(np.arange(m, distinct), surplus)]
    # a key holds both endpoints, and their order does not matter
    endpoints = keys[:m].view(np.int32).reshape(m, 2)
    return endpoints[:, 0], endpoints[:, 1]


def neighbour_sum(
    n: int = 1000,
    degree: int = 6,
    features: int = 5,
    own: float = 0.5,
    noise: float = 0.3,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
) -> Graph:
    """Generate a regression: the label is mostly made of the neighbours' first two columns.

    y = own · x_1 + a_1 + |a_2| + noise, with a = Σ x_u / √degree over the neighbours u and columns that are standard
    normal. Edges are uniform, so neither the degree nor the position of a node tells its label.

    Parameters
    ----------
    n, degree : int
        Number of nodes, and mean degree.
    features : int
        Number of columns, at least 2.
    own : float
        Weight of the node's own first column.
    noise : float
        Standard deviation of the noise.
    train, val : float
        Fractions of the split, stratified by quantiles of the label.
    seed : int
    """
    _at_least("n", n, 20)
    _at_least("degree", degree, 1)
    _at_least("features", features, 2)
    _at_least("noise", noise, 0)
    check_fractions(train, val)
    rng = _rng(seed)
    x = rng.standard_normal((n, features), dtype=np.float32)
    ends = rng.integers(0, n, (2, n * degree // 2))
    ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    graph = Graph.from_edge_index(np.hstack([ends, ends[::-1]]), x=x, num_nodes=n, name="neighbour_sum")
    degrees = np.maximum(graph.degrees(), 1)[:, None]
    around = np.asarray(graph.adjacency() @ x[:, :2]) / np.sqrt(degrees)
    y = own * x[:, 0] + around[:, 0] + np.abs(around[:, 1]) + noise * rng.standard_normal(n)
    return _with_split(replace(graph, y=y.astype(np.float64)), train, val, seed)


def _with_split(graph: Graph, train: float, val: float, seed: int) -> Graph:
    return graph.with_splits([stratified_split(graph.labels(), train, val, seed)])


GENERATORS: dict[str, Callable[..., Graph]] = {
    "csbm": csbm,
    "board": minesweeper,
    "colouring": colouring,
    "monophily": monophily,
    "rmat": rmat,
    "neighbour_sum": neighbour_sum,
}


def parse_source(source: str) -> Graph:
    """Generate a graph from a string such as ``csbm:phi=-0.5,n=5000``, which becomes its name.

    The string is a key of `GENERATORS` and the arguments that differ from the defaults. Integers may be written
    1000000, 1_000_000 or 1e6.

    Examples
    --------
    >>> parse_source("colouring:n=20,colours=2,degree=4,seed=1")
    Graph('colouring:n=20,colours=2,degree=4,seed=1': 20 nodes, 80 stored edges, 2 classes, 1 split)
    """
    name, _, text = source.partition(":")
    if name.strip() not in GENERATORS:
        raise InputError(f"unknown generator {name.strip()!r}; choose one of {', '.join(GENERATORS)}")
    generator = GENERATORS[name.strip()]
    parameters = inspect.signature(generator, eval_str=True).parameters
    arguments: dict[str, float] = {}
    for part in text.split(",") if text.strip() else ():
        argument, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"{source}: {part.strip()!r} is not an argument; write name=value, separated by commas")
        if argument not in parameters:
            raise InputError(f"{source}: {name.strip()} has no argument {argument!r}; it has {', '.join(parameters)}")
        if argument in arguments:
            raise InputError(f"{source}: {argument} is given twice; leave one out")
        arguments[argument] = _number(source, argument, value, whole=parameters[argument].annotation is int)
    _check_size(source, {p.name: p.default for p in parameters.values()} | arguments)
    return replace(generator(**arguments), name=source)


def _check_size(source: str, arguments: dict[str, float]) -> None:
    """Refuse a graph that does not fit into memory: 4 bytes a feature, about 64 an edge while it is built."""
    n = arguments["n"] if "n" in arguments else arguments["rows"] * arguments["columns"]
    edges = arguments.get("m", n * arguments.get("degree", 0) / 2)
    check_memory(n * (16 + 4 * arguments.get("features", 0)) + 64 * edges, source, "lower n")


def _number(source: str, argument: str, text: str, *, whole: bool) -> float:
    try:
        value = float(text)
        if not whole:
            return value
        if value.is_integer():
            # a float holds 53 bits, so plain integers are not converted through it
            return int(text) if text.lstrip("+-").replace("_", "").isdecimal() else int(value)
    except ValueError:
        pass
    raise InputError(f"{source}: {argument} must be {'an integer' if whole else 'a number'}, got {text!r}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"{name} must lie in [{low}, {high}], got {value}")


def _at_least(name: str, value: float, low: float) -> None:
    if not low <= value < math.inf:
        raise InputError(f"{name} must be at least {low} and finite, got {value}")


def _rng(seed: int) -> np.random.Generator:
    _at_least("seed", seed, 0)
    return np.random.default_rng(seed)
