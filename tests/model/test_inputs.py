"""Feature tables against numpy."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model import inputs
from gpatcher.model.inputs import (
    FeatureConfig,
    FeatureTable,
    SparseProduct,
    node_features,
    unseen_features,
)
from gpatcher.model.structure import pagerank, with_structure_features


@pytest.fixture(autouse=True)
def every_warning():
    """Torch warns of arrays that it may not write to once per process; here every time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


FORMS = ("dense", "double", "sparse", "memmap", "readonly")


def features(n=12, d=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[rng.random((n, d)) < 0.4] = 0
    x[3] = 0
    return x


def in_form(x, form, folder):
    if form == "sparse":
        return sp.csr_array(x)
    if form == "double":
        return x.astype(np.float64)
    if form == "memmap":
        np.save(folder / "x.npy", x)
        return np.load(folder / "x.npy", mmap_mode="r")
    if form == "readonly":
        x = x.copy()
        x.flags.writeable = False
    return x


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [None, [4], [7, 0, 7, 11], []])
def test_linear_is_the_product(form, rows, tmp_path):
    x, weight = features(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    table = FeatureTable(in_form(x, form, tmp_path))
    assert table.shape == (12, 5)
    product = table.linear(weight, rows=None if rows is None else torch.tensor(rows, dtype=torch.long))
    expected = (x if rows is None else x[np.array(rows, int)]) @ weight.numpy()
    assert product.dtype == torch.float32
    np.testing.assert_allclose(product, expected, atol=1e-5)


def test_rows_that_are_taken_again_are_kept(monkeypatch):
    x = features()
    table = FeatureTable(sp.csr_array(x))
    train, val = torch.tensor([7, 0, 11]), torch.tensor([1, 2])
    first, second = table.take(train), table.take(val)
    assert table.take(train.clone()) is first
    assert table.take(val.clone()) is second
    train[0] = 3  # what is kept does not change with the tensor that asked for it
    np.testing.assert_array_equal(table.rows(train), x[[3, 0, 11]])
    np.testing.assert_array_equal(table.rows(torch.tensor([7, 0, 11])), x[[7, 0, 11]])
    monkeypatch.setattr(inputs, "_KEPT_BYTES", 0)
    table = FeatureTable(sp.csr_array(x))
    assert table.take(val) is not table.take(val)


@pytest.mark.parametrize("rows", [None, [7, 0, 7, 11]])
def test_gradient_of_the_sparse_product_is_that_of_the_dense(rows):
    x = features()
    ids = None if rows is None else torch.tensor(rows)
    grads = []
    for table in (FeatureTable(sp.csr_array(x)), FeatureTable(x)):
        weight = torch.linspace(-1, 1, 15).view(5, 3).requires_grad_()
        (table.linear(weight, rows=ids) ** 2).sum().backward()
        grads.append(weight.grad)
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-4)
    dense = torch.tensor(x if rows is None else x[rows])
    weight = torch.linspace(-1, 1, 15).view(5, 3)
    np.testing.assert_allclose(grads[0], 2 * dense.T @ (dense @ weight), atol=1e-4)


def test_a_sparse_product_that_is_moved_after_use():
    product = SparseProduct(sp.csr_array(features()))
    for dtype in (torch.float32, torch.float64):  # a move to another device replaces the buffers in the same way
        product = product.to(dtype)
        h = torch.ones(5, 2, dtype=dtype, requires_grad=True)
        product(product.values, h).sum().backward()
        np.testing.assert_allclose(h.grad, np.tile(features().sum(0)[:, None], 2), rtol=1e-5)


def test_a_sparse_product_without_entries():
    product = SparseProduct(sp.csr_array((3, 4), dtype=np.float32))
    h = torch.ones(4, 2, requires_grad=True)
    product(product.values, h).sum().backward()
    assert not product(product.values, h).any()
    assert not h.grad.any()


def test_gradient_under_dropout_is_that_of_the_kept_entries():
    """Forward and backward share one draw: the gradient of S·w is Sᵀ·1 with the S that was multiplied."""
    x = np.abs(features()) + (features() != 0)
    weight = torch.eye(5, requires_grad=True)
    torch.manual_seed(0)
    dropped = FeatureTable(sp.csr_array(x)).linear(weight, p=0.5)  # the dropped matrix itself
    dropped.sum().backward()
    np.testing.assert_allclose(weight.grad, dropped.detach().sum(0)[:, None].expand(5, 5), atol=1e-5)
    assert (dropped == 0).sum() > (torch.tensor(x) == 0).sum()


@pytest.mark.parametrize("form", ["dense", "sparse", "memmap"])
def test_dropout_keeps_the_expectation(form, tmp_path):
    x = features()
    table = FeatureTable(in_form(np.tile(x, (3000, 1)), form, tmp_path))
    torch.manual_seed(0)
    draws = table.linear(torch.eye(5), p=0.4).view(3000, 12, 5)
    np.testing.assert_allclose(draws.mean(0), x, atol=0.12)
    kept = draws[:, x != 0] != 0
    assert kept.float().mean().item() == pytest.approx(0.6, abs=0.01)
    # what is kept is scaled up
    np.testing.assert_allclose(draws.abs().amax(0), np.abs(x) / 0.6, atol=1e-5)


def test_the_table_does_not_change_its_argument():
    x = sp.csr_array(np.array([[0.0, 2.0], [1.0, 3.0]]))
    before = x.toarray()
    table = FeatureTable(x)
    table.linear(torch.eye(2), p=0.9)
    np.testing.assert_array_equal(x.toarray(), before)
    np.testing.assert_allclose(table.linear(torch.eye(2)), before)


# ------------------------------------------------------------------------------------------------ normalise


def graph_with(x, directed=False):
    source, target = np.array([0, 1, 2, 5]), np.array([1, 2, 4, 6])
    if not directed:
        source, target = np.r_[source, target], np.r_[target, source]
    return Graph.from_edge_index((source, target), x=x, num_nodes=12)


def dense_features(graph, **options):
    """The rows of the table as an array."""
    table = node_features(graph, FeatureConfig(**options))
    return table.linear(torch.eye(table.shape[1])).numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["none", "l1", "l2", "standard"])
@pytest.mark.parametrize("empty", [0.4, 0.9], ids=["half-full", "nearly-empty"])
def test_normalise(form, how, empty, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 20)).astype(np.float32)
    x[rng.random((12, 20)) < empty] = 0
    x[3] = 0
    expected = {
        "none": lambda r: r,
        "l1": lambda r: r / np.abs(r).sum() if r.any() else r,
        "l2": lambda r: r / np.sqrt((r**2).sum()) if r.any() else r,
        "standard": lambda r: (r - r.mean()) / r.std() if r.any() else r,
    }[how]
    rows = dense_features(graph_with(in_form(x, form, tmp_path)), normalise=how)
    np.testing.assert_allclose(rows, np.array([expected(r) for r in x]), atol=1e-5)
    np.testing.assert_array_equal(rows[3], 0)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int64, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_l2_norm_of_integers_does_not_overflow(kind, sparse):
    """100² does not fit into eight bits."""
    x = np.zeros((12, 20), kind)
    x[np.arange(12), np.arange(12)] = 100
    x[:, 15] = 100
    rows = dense_features(graph_with(sp.csr_array(x) if sparse else x), normalise="l2")
    np.testing.assert_allclose(rows, x / (100 * np.sqrt(2)), atol=1e-6)


def test_constant_rows_under_standard_are_zero():
    rows = dense_features(graph_with(np.full((12, 4), 7.0, np.float32)), normalise="standard")
    np.testing.assert_array_equal(rows, 0)


# ------------------------------------------------------------------------------------------------ adjacency


def test_a_directed_graph_adds_its_rows_and_columns():
    x = features()
    graph = graph_with(x, directed=True)
    A = np.zeros((12, 12))
    A[[0, 1, 2, 5], [1, 2, 4, 6]] = 1
    np.testing.assert_allclose(dense_features(graph, adjacency_features=True), np.hstack([x, A, A.T]), atol=1e-6)
    scaled = dense_features(graph, adjacency_features=True, normalise="l1")
    np.testing.assert_allclose(scaled[:, 5:], np.hstack([A, A.T]))
    np.testing.assert_allclose(np.abs(scaled[0, :5]).sum(), 1, atol=1e-6)


def test_an_undirected_graph_adds_its_rows_once():
    x = features()
    A = np.zeros((12, 12))
    A[[0, 1, 2, 5], [1, 2, 4, 6]] = 1
    np.testing.assert_allclose(
        dense_features(graph_with(x), adjacency_features=True), np.hstack([x, A + A.T]), atol=1e-6
    )


def test_adjacency_rows_are_features_of_a_graph_without_any():
    graph = graph_with(None)
    rows = dense_features(graph, adjacency_features=True)
    np.testing.assert_array_equal(rows, graph.adjacency().toarray())


def test_adjacency_rows_keep_weights():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], weights=[2.5, 2.5], num_nodes=3)
    assert dense_features(graph, adjacency_features=True)[0].tolist() == [0, 2.5, 0]


# ------------------------------------------------------------------------------------------------ errors


def test_impossible_tables_are_refused():
    with pytest.raises(InputError, match=r"none, l1, l2, standard.*'nonsense'"):
        FeatureConfig(normalise="nonsense")
    with pytest.raises(InputError, match=r"no features.*adjacency_features=true"):
        node_features(graph_with(None))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("adjacency", [False, True])
def test_the_log_of_the_l1_norm_is_that_before_normalisation(form, adjacency, tmp_path):
    x = features()
    graph = graph_with(in_form(x, form, tmp_path))
    rows = dense_features(graph, normalise="l2", log_l1_norm=True, adjacency_features=adjacency)
    np.testing.assert_allclose(rows[:, 5], np.log1p(np.abs(x).sum(1)), atol=1e-5)
    np.testing.assert_allclose(rows[:, :5], dense_features(graph, normalise="l2"), atol=1e-6)
    if adjacency:
        np.testing.assert_allclose(rows[:, 6:], graph.adjacency().toarray())


def test_the_log_of_the_l1_norm_does_not_read_a_large_memory_map(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 100)
    with pytest.raises(InputError, match="memory-mapped"):
        node_features(graph_with(in_form(features(), "memmap", tmp_path)), FeatureConfig(log_l1_norm=True))


# ------------------------------------------------------------------------------------------------ unseen nodes


@pytest.mark.parametrize("form", ["dense", "sparse", "memmap"])
@pytest.mark.parametrize("normalise", ["none", "l1", "l2", "standard"])
@pytest.mark.parametrize("log_l1_norm", [False, True])
def test_features_of_unseen_nodes_are_those_of_the_extended_graph(form, normalise, log_l1_norm, tmp_path):
    config = FeatureConfig(normalise=normalise, log_l1_norm=log_l1_norm)
    graph = graph_with(in_form(features(), form, tmp_path))
    unseen = UnseenNodes.join(graph, [[12, 13], [3, 12]], features(seed=1)[:2])
    nodes = np.array([1, 3, 12, 13])
    table = unseen_features(unseen, nodes, config)
    whole = node_features(unseen.extended(), config)
    assert table.shape == (4, 5 + log_l1_norm)
    rows, expected = (t.linear(torch.eye(t.shape[1])) for t in (table, whole))
    np.testing.assert_allclose(rows, expected[nodes], atol=1e-6)


@pytest.mark.parametrize("directed", [False, True])
def test_adjacency_rows_of_unseen_nodes_have_the_columns_of_training(directed):
    graph = graph_with(features(), directed=directed)
    unseen = UnseenNodes.join(graph, [[12, 13, 7], [3, 12, 13]], features(seed=1)[:2])
    nodes = np.array([1, 3, 12, 13])
    config = FeatureConfig(adjacency_features=True)
    table = unseen_features(unseen, nodes, config)
    assert table.shape == (4, node_features(graph, config).shape[1])
    A = unseen.extended().adjacency().toarray()
    parts = [A[:, :12], A.T[:, :12]] if directed else [A[:, :12]]  # edges to unseen nodes have no column
    rows = table.linear(torch.eye(table.shape[1]))
    np.testing.assert_allclose(rows[:, 5:], np.hstack(parts)[nodes], atol=1e-6)


# ------------------------------------------------------------------------------------------------ structure


def test_pagerank_is_the_stationary_distribution():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 12, (2, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = Graph.from_edge_index(edges, num_nodes=14)
    dense = graph.adjacency().toarray()
    transition = np.where(dense.sum(1, keepdims=True) > 0, dense / np.maximum(dense.sum(1, keepdims=True), 1), 1 / 14)
    exact = np.linalg.solve(np.eye(14) - 0.85 * transition.T, np.full(14, 0.15 / 14))
    np.testing.assert_allclose(pagerank(graph), exact, atol=1e-4)
    assert pagerank(graph).sum() == pytest.approx(1)


def test_structure_features_separate_the_sides_of_a_bipartite_graph():
    left, right = np.arange(6), np.arange(6, 14)
    edges = np.array([(a, b) for a in left for b in right]).T
    graph = with_structure_features(Graph.from_edge_index(np.hstack([edges, edges[::-1]])), coordinates=2)
    assert graph.x.shape == (14, 4)
    assert graph.x.dtype == np.float32
    sides = graph.x[:, 2:] @ np.linalg.lstsq(graph.x[:, 2:], np.repeat([1.0, -1.0], [6, 8]), rcond=None)[0]
    assert (sides[:6] > 0).all()
    assert (sides[6:] < 0).all()
    again = with_structure_features(graph, coordinates=2)
    assert np.array_equal(again.x, graph.x)
