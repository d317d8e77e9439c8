import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse.csgraph as csgraph

from gpatcher.datasets.synthetic import (
    GENERATORS,
    colouring,
    csbm,
    minesweeper,
    monophily,
    neighbour_sum,
    parse_source,
    rmat,
)
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.kernels.rmat import draw_rmat

SMALL = {
    "csbm": dict(n=300, features=20),
    "board": dict(rows=12, columns=9),
    "colouring": dict(n=60),
    "monophily": dict(n=300, degree=8),
    "rmat": dict(n=300, m=900, features=4),
    "neighbour_sum": dict(n=300),
}


def dense(graph: Graph) -> np.ndarray:
    return graph.adjacency().toarray()


# ------------------------------------------------------------------------------------- all generators


@pytest.mark.parametrize("name", GENERATORS)
def test_graph_is_undirected_simple_and_split(name):
    graph = GENERATORS[name](**SMALL[name])
    assert not graph.is_directed
    assert graph.self_loops == graph.duplicate_edges == 0
    assert graph.weights is None
    (split,) = graph.splits
    assert sum(split.sizes) == graph.n
    assert graph.is_regression or set(graph.y[split.train]) == set(range(graph.num_classes))
    assert graph.x is None or graph.x.dtype == np.float32


@pytest.mark.parametrize("name", GENERATORS)
def test_seed_decides_everything(name):
    one, same, other = (GENERATORS[name](**SMALL[name], seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.indptr, same.indptr)
    assert np.array_equal(one.indices, same.indices)
    assert np.array_equal(one.y, same.y)
    assert one.x is None or np.array_equal(one.x, same.x)
    assert one.splits[0].hash == same.splits[0].hash != other.splits[0].hash
    assert not (np.array_equal(one.indices, other.indices) and (one.x is None or np.array_equal(one.x, other.x)))


@pytest.mark.parametrize("name", GENERATORS)
def test_fractions_of_the_split(name):
    graph = GENERATORS[name](**SMALL[name], train=0.3, val=0.5)
    assert np.allclose(np.array(graph.splits[0].sizes), np.array([0.3, 0.5, 0.2]) * graph.n, atol=1)
    with pytest.raises(InputError, match="val must lie in"):
        GENERATORS[name](**SMALL[name], train=0.8, val=0.5)
    with pytest.raises(InputError, match="seed must be at least 0"):
        GENERATORS[name](**SMALL[name], seed=-1)


# ---------------------------------------------------------------------------------------------- csbm


@pytest.mark.parametrize("phi", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_csbm_rates_and_features_follow_the_formula(phi):
    n, degree, features, epsilon = 4000, 5.0, 1000, 3.25
    graph = csbm(phi, n, degree, features, epsilon, seed=2)
    assert np.bincount(graph.y).tolist() == [n // 2, n // 2]

    strength = math.sqrt(1 + epsilon) * math.sin(math.pi * phi / 2)
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    same = np.count_nonzero(graph.y[source] == graph.y[graph.indices]) // 2
    for edges, pairs, rate in (
        (same, 2 * (n // 2) * (n // 2 - 1) // 2, degree + math.sqrt(degree) * strength),
        (graph.m - same, (n // 2) ** 2, degree - math.sqrt(degree) * strength),
    ):
        assert abs(edges - pairs * rate / n) < 5 * math.sqrt(pairs * rate / n)

    # half the difference of the class means is sqrt(mu / n) u plus noise of squared length 1 / n, and |u| = 1
    mu = math.sqrt((1 + epsilon) * n / features) * math.cos(math.pi * phi / 2)
    half = (graph.x[graph.y == 1].mean(axis=0) - graph.x[graph.y == 0].mean(axis=0)) / 2
    spread = math.sqrt(2 / features)
    assert abs(n * float(half @ half) - (mu + 1)) < 5 * ((mu + 1) * spread + 2 * math.sqrt(mu / features))
    assert features * graph.x.var() == pytest.approx(1 + mu / n, rel=0.01)


@pytest.mark.parametrize("n", [10, 12])
def test_csbm_reaches_every_pair_once(n):
    # with this degree and epsilon all pairs within (or between) the classes have probability 1 and all others 0
    within = csbm(phi=1, n=n, degree=n / 2, epsilon=n / 2 - 1, features=2)
    between = csbm(phi=-1, n=n, degree=n / 2, epsilon=n / 2 - 1, features=2)
    assert np.array_equal(dense(within), (within.y[:, None] == within.y) & ~np.eye(n, dtype=bool))
    assert np.array_equal(dense(between), between.y[:, None] != between.y)


def test_csbm_pairs_are_equally_likely():
    hits = np.zeros((6, 6))
    for seed in range(200):
        graph = csbm(phi=0, n=6, degree=3, features=1, seed=seed)
        hits += dense(graph)
    off = hits[~np.eye(6, dtype=bool)]
    assert abs(off - 100).max() < 5 * math.sqrt(200 * 0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(phi=1.5), r"phi must lie in \[-1, 1\], got 1.5"),
        (dict(phi=math.nan), "phi must lie in"),
        (dict(degree=2.0, phi=1.0), r"degree=2.0 .* between classes negative; raise degree to at least 4.25"),
        (dict(degree=2.0, phi=-1.0), r"degree=2.0 .* within classes negative"),
        (dict(degree=10.0, n=12), r"probability of an edge .* n=12 nodes; raise n to at least 15"),
        (dict(features=0), "features must be at least 1"),
        (dict(n=1), "n must be at least 2"),
        (dict(epsilon=-1.5), "epsilon must be at least -1"),
        (dict(degree=math.inf), "degree must be at least 0 and finite, got inf"),
    ],
)
def test_csbm_rejects_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        csbm(**arguments)


def test_csbm_accepts_the_values_its_messages_suggest():
    assert csbm(degree=4.25, phi=1.0, n=400, features=3).n == 400
    assert csbm(degree=10.0, n=15, features=3).n == 15


# --------------------------------------------------------------------------------------------- board


@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (1, 9), (9, 1), (2, 2)])
def test_board_by_brute_force(rows, columns):
    graph = minesweeper(rows, columns, mines=0.3, hidden=0.4, seed=1)
    n = rows * columns
    hidden = 0
    for v in range(n):
        r, c = divmod(v, columns)
        neighbours = [
            i * columns + j
            for i in range(max(0, r - 1), min(rows, r + 2))
            for j in range(max(0, c - 1), min(columns, c + 2))
            if (i, j) != (r, c)
        ]
        assert graph.neighbours(v).tolist() == neighbours
        expected = np.zeros(10)
        if graph.x[v, 9]:
            hidden += 1
            expected[9] = 1
        else:
            expected[sum(graph.y[neighbours])] = 1
        assert graph.x[v].tolist() == expected.tolist()
    assert hidden == round(0.4 * n)
    assert graph.y.sum() == round(0.3 * n)
    assert graph.classes == ("free", "mine")


def test_board_hides_mines_and_free_cells_alike():
    graph = minesweeper(100, 100)
    fraction = graph.x[graph.y == 1, 9].mean()
    assert abs(fraction - 0.5) < 5 * math.sqrt(0.25 / 2000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(mines=0.0), "mines=0.0 puts 0 mines on a board of 10000 cells"),
        (dict(mines=1.0), "mines=1.0 puts 10000 mines"),
        (dict(mines=1.2), r"mines must lie in \[0, 1\], got 1.2"),
        (dict(hidden=-0.1), r"hidden must lie in \[0, 1\], got -0.1"),
        (dict(rows=0), "rows must be at least 1"),
    ],
)
def test_board_rejects_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        minesweeper(**arguments)


# ----------------------------------------------------------------------------------------- colouring


@pytest.mark.parametrize(("n", "colours", "degree"), [(60, 4, 6), (30, 2, 6), (45, 3, 10), (4, 4, 2), (12, 12, 10)])
def test_colouring_is_proper_regular_and_connected(n, colours, degree):
    graph = colouring(n, colours, degree, seed=5)
    adjacency = dense(graph)
    assert np.bincount(graph.y).tolist() == [n // colours] * colours
    assert (adjacency.sum(axis=1) == degree).all()
    assert csgraph.connected_components(graph.adjacency())[0] == 1
    same = graph.y[:, None] == graph.y
    heterophily = (adjacency * ~same).sum(axis=1) / degree
    assert (heterophily == 1).all()

    values, vectors = np.linalg.eigh(graph.normalised().toarray())
    energy = (vectors.T @ heterophily) ** 2
    assert energy[values > 1 - 1e-9].sum() == pytest.approx(energy.sum())
    for label in range(colours):
        z = (graph.y == label).astype(float)
        assert z @ (graph.normalised() @ z) == 0
        assert values @ (vectors.T @ z) ** 2 == pytest.approx(0, abs=1e-9)  # the mean eigenvalue
        assert ((vectors.T @ z) ** 2)[values < 0].sum() > 0.01  # so not all of it is low-frequency


def test_colouring_accepts_the_degree_its_message_suggests():
    assert colouring(n=8, degree=6).m == 24


def test_colouring_shuffles_the_ids():
    assert colouring(60, 4).y.tolist() != (np.arange(60) % 4).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(n=1001), "n must be a multiple of colours=4, got 1001; the nearest is 1000"),
        (dict(n=1003), "the nearest is 1004"),
        (dict(n=3, colours=9), "the nearest is 9"),
        (dict(degree=5), "degree must be even and at least 2, got 5; take 6"),
        (dict(degree=0), "degree must be even and at least 2, got 0; take 2"),
        (dict(n=8, degree=8), "degree=8 .* n=8 nodes in 4 colours; raise n or lower degree to at most 6"),
        (dict(colours=1), "colours must be at least 2"),
    ],
)
def test_colouring_rejects_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        colouring(**arguments)


# ----------------------------------------------------------------------------------------- monophily


def test_monophily_two_steps_tell_what_one_does_not():
    graph = monophily(n=1000, degree=30, spread=0.25, seed=1)
    assert graph.m == 15_000
    assert np.bincount(graph.y).tolist() == [500, 500]
    sign = 2 * graph.y - 1
    adjacency = dense(graph)
    one = sign @ adjacency @ sign / adjacency.sum()
    two = adjacency @ adjacency
    np.fill_diagonal(two, 0)
    assert abs(one) < 0.04  # neighbours are alike as often as unlike
    assert sign @ two @ sign / two.sum() > 0.05
    shares = (adjacency @ graph.y) / adjacency.sum(1)
    binomial = np.sqrt(0.25 / adjacency.sum(1))
    assert shares.std() > 2 * binomial.mean()  # neighbourhoods are more one-sided than chance makes them


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(spread=0.5), r"spread must lie in \(0, 0.5\), got 0.5"),
        (dict(n=100, degree=40), r"degree must lie in .*24.75\], got 40"),
        (dict(features=0), "features must be at least 1"),
    ],
)
def test_monophily_rejects_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        monophily(**arguments)


# ------------------------------------------------------------------------------------- neighbour_sum


def test_neighbour_sum_follows_the_formula():
    graph = neighbour_sum(n=300, own=0.5, noise=0.0)
    around = dense(graph) @ graph.x / np.sqrt(np.maximum(graph.degrees(), 1))[:, None]
    assert np.allclose(graph.y, 0.5 * graph.x[:, 0] + around[:, 0] + np.abs(around[:, 1]), atol=1e-5)
    with pytest.raises(InputError, match="features must be at least 2"):
        neighbour_sum(features=1)


# ---------------------------------------------------------------------------------------------- rmat


@pytest.mark.parametrize(("n", "m"), [(1000, 5000), (1024, 5000), (1025, 20000), (2, 1), (3, 3), (5, 10)])
def test_rmat_has_exactly_m_edges(n, m):
    graph = rmat(n, m, classes=2)
    adjacency = dense(graph)
    assert graph.n == n
    assert graph.m == m == np.count_nonzero(np.triu(adjacency, 1))
    assert np.array_equal(adjacency, adjacency.T)
    assert not np.diag(adjacency).any()


def test_rmat_draws_follow_the_quadrants():
    a, b, c = 0.5, 0.2, 0.1
    quadrants = np.array([[a, b], [c, 1 - a - b - c]])
    expected = np.kron(np.kron(quadrants, quadrants), quadrants)[:7, :7]
    expected = np.triu(expected + expected.T, 1)
    keys = np.empty(200_000, np.int64)
    draw_rmat(keys, np.uint64(7), 0, 7, 3, a, a + b, a + b + c)
    edges = keys[keys != np.iinfo(np.int64).max]
    counts = np.zeros((7, 7))
    np.add.at(counts, (edges >> 32, edges & 0xFFFFFFFF), 1)
    assert (abs(counts - expected * keys.size) <= 5 * np.sqrt(expected * keys.size)).all()


def test_rmat_draws_do_not_depend_on_blocks():
    whole, parts = np.empty(1000, np.int64), np.empty(1000, np.int64)
    arguments = (1000, 10, 0.57, 0.76, 0.95)
    draw_rmat(whole, np.uint64(7), 0, *arguments)
    draw_rmat(parts[:300], np.uint64(7), 0, *arguments)
    draw_rmat(parts[300:], np.uint64(7), 300, *arguments)
    assert np.array_equal(whole, parts)


def test_rmat_drops_a_random_surplus():
    # with few edges the surplus is large; with equal quadrants the endpoints are uniform
    graph = rmat(1000, 100, a=0.25, b=0.25, c=0.25)
    endpoints = np.repeat(np.arange(1000), np.diff(graph.indptr))
    assert abs(endpoints.mean() - 499.5) < 5 * 1000 / math.sqrt(12 * 200)


def test_rmat_degrees_are_skewed_unless_the_quadrants_are_equal():
    skewed, equal = rmat(2000, 20000).degrees(), rmat(2000, 20000, a=0.25, b=0.25, c=0.25).degrees()
    assert skewed.max() > 10 * skewed.mean()
    assert equal.max() < 3 * equal.mean()


def test_rmat_labels_are_blocks_with_separable_features():
    graph = rmat(1003, 4000, classes=5, features=16)
    assert graph.y.tolist() == [i * 5 // 1003 for i in range(1003)]
    means = np.stack([graph.x[graph.y == label].mean(axis=0) for label in range(5)])
    nearest = ((graph.x[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == graph.y).mean() > 0.9


def test_rmat_homophily_has_the_sign_of_ad_minus_bc():
    def adjusted(graph):
        source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        same = (graph.y[source] == graph.y[graph.indices]).mean()
        by_degree = ((np.bincount(graph.y, graph.degrees()) / graph.degrees().sum()) ** 2).sum()
        return (same - by_degree) / (1 - by_degree)

    assert -0.1 < adjusted(rmat(5000, 50000, classes=4)) < 0
    assert adjusted(rmat(5000, 50000, a=0.45, b=0.15, c=0.15, classes=4)) > 0.15


def test_rmat_needs_little_more_memory_than_its_graph():
    rmat(1000, 4000)  # compile first
    tracemalloc.start()
    try:
        graph = rmat(50_000, 500_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * graph.nbytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(n=10, m=46), "m=46 edges do not fit among n=10 nodes: there are 45 pairs"),
        (dict(n=64, m=2016), r"m=2016 distinct edges are too many for n=64.* lower m, raise n"),
        (dict(n=10, m=5, a=0, b=0, c=0), "100 rounds gave 0"),
        (dict(a=0.6, b=0.3, c=0.3), r"a \+ b \+ c must be at most 1, got 0.6 \+ 0.3 \+ 0.3 = 1.2"),
        (dict(a=-0.1), r"a must lie in \[0, 1\], got -0.1"),
        (dict(n=10, m=5, classes=11), r"classes must lie in \[1, 10\], got 11"),
        (dict(n=1), r"n must lie in \[2, 2147483647\], got 1"),
        (dict(m=0), "m must be at least 1"),
        (dict(features=-1), "features must be at least 0"),
    ],
)
def test_rmat_rejects_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        rmat(**arguments)


# ------------------------------------------------------------------------------------------- strings


def test_source_equals_the_call_and_names_the_graph():
    graph = parse_source("csbm: phi=-0.5, n=4e2, features=1_0")
    call = csbm(phi=-0.5, n=400, features=10)
    assert graph.name == "csbm: phi=-0.5, n=4e2, features=1_0"
    assert np.array_equal(graph.indices, call.indices)
    assert np.array_equal(graph.x, call.x)
    assert graph.splits[0].hash == call.splits[0].hash


def test_source_without_arguments_takes_the_defaults():
    assert parse_source("colouring").n == parse_source("colouring:").n == 1000


def test_source_keeps_all_digits_of_a_seed():
    near = [parse_source(f"rmat:n=100,m=300,seed={2**53 + i}") for i in (0, 1)]
    assert not np.array_equal(near[0].indices, near[1].indices)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("sbm:n=10", "unknown generator 'sbm'; choose one of csbm, board, colouring, monophily, rmat"),
        ("", "unknown generator ''"),
        ("csbm:p=3", "csbm has no argument 'p'; it has phi, n, degree, features, epsilon, seed, train, val"),
        ("csbm:n=12,n=14", "n is given twice"),
        ("csbm:n=1000000000000", "would take about .* GiB of memory, and .* GiB are free; lower n"),
        ("board:rows=1e9,columns=1e9", "GiB are free"),
        ("csbm:n=1.5", "n must be an integer, got '1.5'"),
        ("csbm:n=many", "n must be an integer, got 'many'"),
        ("csbm:n=inf", "n must be an integer, got 'inf'"),
        ("csbm:n=", "n must be an integer, got ''"),
        ("csbm:phi=half", "csbm:phi=half: phi must be a number, got 'half'"),
        ("csbm:phi", "'phi' is not an argument; write name=value"),
        ("csbm:phi=0.1,", "'' is not an argument"),
        ("csbm:phi=nan", r"phi must lie in \[-1, 1\], got nan"),
        ("csbm:=3", "csbm has no argument ''"),
    ],
)
def test_source_rejects_bad_arguments(source, message):
    with pytest.raises(InputError, match=message):
        parse_source(source)
