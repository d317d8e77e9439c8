import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import homophily

from gpatcher.datasets.load import load_dataset
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.spectral.heterophily import heterophily, train_duplicates


@st.composite
def connected_labelled_graphs(draw):
    """Undirected graphs without isolated nodes: a ring plus random chords."""
    n = draw(st.integers(3, 25))
    pairs = {(v, (v + 1) % n) for v in range(n)}
    pairs |= draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    edges = sorted({p for a, b in pairs if a != b for p in ((a, b), (b, a))})
    y = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    y[:2] = [0, max(1, max(y))]
    names = {c: i for i, c in enumerate(sorted(set(y)))}
    return np.array(edges).T, np.array([names[c] for c in y])


@given(connected_labelled_graphs())
@settings(max_examples=60, deadline=None)
def test_agrees_with_torch_geometric(case):
    edge_index, y = case
    result = heterophily(Graph.from_edge_index(edge_index, y=y))
    edges, labels = torch.from_numpy(edge_index), torch.from_numpy(y)
    assert 1 - result.node_heterophily == pytest.approx(homophily(edges, labels, method="node"), abs=1e-6)
    assert result.edge_homophily == pytest.approx(homophily(edges, labels, method="edge"), abs=1e-6)
    expected = homophily(edges, labels, method="edge_insensitive")
    assert result.class_insensitive_homophily == pytest.approx(expected, abs=1e-6)


@given(connected_labelled_graphs())
@settings(max_examples=40, deadline=None)
def test_adjusted_and_informativeness_against_their_definitions(case):
    edge_index, y = case
    result = heterophily(Graph.from_edge_index(edge_index, y=y))
    # by definition, from the edge list: the labels at the endpoints of a random edge
    a, b = y[edge_index[0]], y[edge_index[1]]
    classes = range(y.max() + 1)
    fractions = np.array([np.mean(a == c) for c in classes])
    joint = np.array([[np.mean((a == c) & (b == d)) for d in classes] for c in classes])
    chance = (fractions**2).sum()
    if chance < 1:
        assert result.adjusted_homophily == pytest.approx((np.mean(a == b) - chance) / (1 - chance))
    mutual = sum(
        joint[c, d] * np.log(joint[c, d] / (fractions[c] * fractions[d]))
        for c in classes
        for d in classes
        if joint[c, d] > 0
    )
    entropy = -sum(p * np.log(p) for p in fractions if p > 0)
    if entropy > 0:
        assert result.label_informativeness == pytest.approx(mutual / entropy, abs=1e-9)


@given(connected_labelled_graphs(), st.randoms())
@settings(max_examples=30, deadline=None)
def test_does_not_depend_on_the_order_of_nodes(case, random):
    edge_index, y = case
    order = list(range(len(y)))
    random.shuffle(order)
    order = np.array(order)
    permuted = np.empty_like(y)
    permuted[order] = y
    expected = heterophily(Graph.from_edge_index(edge_index, y=y))
    result = heterophily(Graph.from_edge_index(order[edge_index], y=permuted))
    np.testing.assert_allclose(result.node[order], expected.node)
    np.testing.assert_array_equal(result.pairs, expected.pairs)


def test_isolated_and_unlabelled_nodes_are_left_out_and_counted():
    # 0-1 agree, 2-3 disagree, 4 has no neighbour, 5 has no label, 6's only neighbour has none
    graph = Graph.from_edge_index(
        [[0, 1, 2, 3, 5, 6, 0, 5], [1, 0, 3, 2, 6, 5, 5, 0]], y=[0, 0, 0, 1, 0, -1, 1], num_nodes=7
    )
    result = heterophily(graph)
    np.testing.assert_array_equal(result.node, [0, 0, 1, 1, np.nan, np.nan, np.nan])
    assert result.undefined == 3
    assert result.node_heterophily == 0.5
    assert result.edge_homophily == 0.5
    np.testing.assert_array_equal(result.class_sizes, [4, 2])


def test_a_single_class_is_undefined_not_an_error():
    result = heterophily(Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 0]))
    assert result.node_heterophily == 0
    assert np.isnan(result.class_insensitive_homophily)
    assert np.isnan(result.adjusted_homophily)
    assert np.isnan(result.label_informativeness)


def test_needs_labels():
    with pytest.raises(InputError, match="has no labels"):
        heterophily(Graph.from_edge_index([[0, 1], [1, 0]]))


def test_self_loop_counts_as_neighbour_as_in_definition_1():
    with pytest.warns(UserWarning, match="itself"):
        graph = Graph.from_edge_index([[0, 0, 1], [0, 1, 0]], y=[0, 1])
    np.testing.assert_array_equal(heterophily(graph).node, [0.5, 1.0])


# of the undirected graphs, with self-loops and without isolated nodes (48 in CiteSeer)
@pytest.mark.parametrize(
    ("name", "expected", "undefined"),
    [
        ("Cora", 0.175, 0),
        ("CiteSeer", 0.283, 48),
        ("Texas", 0.913, 0),
        ("Cornell", 0.695, 0),
        ("Wisconsin", 0.829, 0),
        ("Chameleon", 0.752, 0),
        ("Squirrel", 0.782, 0),
        ("Actor", 0.778, 0),
    ],
)
def test_node_heterophily_of_real_graphs(data_root, name, expected, undefined):
    result = heterophily(load_dataset(name, data_root))
    assert result.node_heterophily == pytest.approx(expected, abs=5e-4)
    assert result.undefined == undefined


def _duplicates_by_comparison(graph):
    rows = [(tuple(graph.undirected().neighbours(v)), graph.y[v]) for v in range(graph.n)]
    fractions = []
    for split in graph.splits:
        train = {rows[v] for v in split.train}
        fractions.append(np.mean([bool(rows[v][0]) and rows[v] in train for v in split.test]))
    return np.mean(fractions)


@given(connected_labelled_graphs())
@settings(max_examples=40, deadline=None)
def test_train_duplicates_against_comparison_of_rows(case):
    edge_index, y = case
    n = len(y)
    graph = Graph.from_edge_index(edge_index, y=y).with_splits([])
    split = Split(train=np.arange(0, n, 2), val=[], test=np.arange(1, n, 2))
    graph = Graph(graph.indptr, graph.indices, y=graph.y, classes=graph.classes, splits=(split,))
    assert train_duplicates(graph) == pytest.approx(_duplicates_by_comparison(graph))


def test_train_duplicates_of_a_star_and_without_a_split():
    star = Graph.from_edge_index([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]], y=[0, 1, 1, 1])
    assert train_duplicates(star) is None
    assert train_duplicates(star.with_splits([Split([0, 1], [], [2, 3])])) == 1.0
    isolated = Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 1, 0, 0], num_nodes=4)
    assert train_duplicates(isolated.with_splits([Split([0, 1, 2], [], [3])])) == 0.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Chameleon", 0.497), ("Squirrel", 0.398), ("Chameleon-filtered", 0.038), ("Squirrel-filtered", 0.003)],
)
def test_train_duplicates_of_real_graphs(data_root, name, expected):
    assert train_duplicates(load_dataset(name, data_root)) == pytest.approx(expected, abs=1e-3)
