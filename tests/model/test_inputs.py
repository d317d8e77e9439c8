"""Feature tables against numpy."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable, node_features, pagerank, with_structure


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
    found = table.linear(weight, rows=None if rows is None else torch.tensor(rows, dtype=torch.long))
    expected = (x if rows is None else x[np.array(rows, int)]) @ weight.numpy()
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


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


def test_gradient_under_dropout_belongs_to_the_entries_that_were_kept():
    """One draw serves both ways: the gradient of S·w is Sᵀ·1 with the dropped S that was multiplied."""
    x = np.abs(features()) + (features() != 0)
    weight = torch.eye(5, requires_grad=True)
    torch.manual_seed(0)
    dropped = FeatureTable(sp.csr_array(x)).linear(weight, dropout=0.5)  # the dropped matrix itself
    dropped.sum().backward()
    np.testing.assert_allclose(weight.grad, dropped.detach().sum(0)[:, None].expand(5, 5), atol=1e-5)
    assert (dropped == 0).sum() > (torch.tensor(x) == 0).sum()


@pytest.mark.parametrize("form", ["dense", "sparse", "memmap"])
def test_dropout_keeps_the_expectation(form, tmp_path):
    x = features()
    table = FeatureTable(in_form(np.tile(x, (3000, 1)), form, tmp_path))
    torch.manual_seed(0)
    draws = table.linear(torch.eye(5), dropout=0.4).view(3000, 12, 5)
    np.testing.assert_allclose(draws.mean(0), x, atol=0.12)
    kept = draws[:, x != 0] != 0
    assert kept.float().mean().item() == pytest.approx(0.6, abs=0.01)
    # what is kept is scaled up
    np.testing.assert_allclose(draws.abs().amax(0), np.abs(x) / 0.6, atol=1e-5)


def test_the_table_does_not_change_what_it_was_given():
    x = sp.csr_array(np.array([[0.0, 2.0], [1.0, 3.0]]))
    before = x.toarray()
    table = FeatureTable(x)
    table.linear(torch.eye(2), dropout=0.9)
    np.testing.assert_array_equal(x.toarray(), before)
    np.testing.assert_allclose(table.linear(torch.eye(2)), before)


# -------------------------------------------------------------------------------------------- normalise


def graph_with(x, directed=False):
    source, target = np.array([0, 1, 2, 5]), np.array([1, 2, 4, 6])
    if not directed:
        source, target = np.r_[source, target], np.r_[target, source]
    return Graph.from_edge_index((source, target), x=x, num_nodes=12)


def table_of(graph, **options):
    table = node_features(graph, **options)
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
    found = table_of(graph_with(in_form(x, form, tmp_path)), normalise=how)
    np.testing.assert_allclose(found, np.array([expected(r) for r in x]), atol=1e-5)
    np.testing.assert_array_equal(found[3], 0)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int64, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_l2_of_whole_numbers_does_not_overflow(kind, sparse):
    """100² does not fit into eight bits."""
    x = np.zeros((12, 20), kind)
    x[np.arange(12), np.arange(12)] = 100
    x[:, 15] = 100
    found = table_of(graph_with(sp.csr_array(x) if sparse else x), normalise="l2")
    np.testing.assert_allclose(found, x / (100 * np.sqrt(2)), atol=1e-6)


def test_constant_rows_under_standard_are_zero():
    found = table_of(graph_with(np.full((12, 4), 7.0, np.float32)), normalise="standard")
    np.testing.assert_array_equal(found, 0)


# -------------------------------------------------------------------------------------------- structure


def test_structure_appends_rows_and_columns_of_a_directed_graph():
    x = features()
    graph = graph_with(x, directed=True)
    A = np.zeros((12, 12))
    A[[0, 1, 2, 5], [1, 2, 4, 6]] = 1
    np.testing.assert_allclose(table_of(graph, structure=True), np.hstack([x, A, A.T]), atol=1e-6)
    scaled = table_of(graph, structure=True, normalise="l1")
    np.testing.assert_allclose(scaled[:, 5:], np.hstack([A, A.T]))
    np.testing.assert_allclose(np.abs(scaled[0, :5]).sum(), 1, atol=1e-6)


def test_structure_of_an_undirected_graph_comes_once():
    x = features()
    A = np.zeros((12, 12))
    A[[0, 1, 2, 5], [1, 2, 4, 6]] = 1
    np.testing.assert_allclose(table_of(graph_with(x), structure=True), np.hstack([x, A + A.T]), atol=1e-6)


def test_structure_serves_where_there_are_no_features():
    graph = graph_with(None)
    found = table_of(graph, structure=True)
    np.testing.assert_array_equal(found, graph.adjacency().toarray())


def test_structure_keeps_weights():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], weights=[2.5, 2.5], num_nodes=3)
    assert table_of(graph, structure=True)[0].tolist() == [0, 2.5, 0]


# ------------------------------------------------------------------------------------------------ errors


def test_impossible_tables_are_refused():
    with pytest.raises(InputError, match=r"'nonsense'.*none, l1, l2, standard"):
        node_features(graph_with(features()), normalise="nonsense")
    with pytest.raises(InputError, match=r"no features.*structure=True"):
        node_features(graph_with(None))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("structure", [False, True])
def test_mass_is_what_a_row_has_of_everything(form, structure, tmp_path):
    x = features()
    graph = graph_with(in_form(x, form, tmp_path))
    found = table_of(graph, normalise="l2", mass=True, structure=structure)
    np.testing.assert_allclose(found[:, 5], np.log1p(np.abs(x).sum(1)), atol=1e-5)
    np.testing.assert_allclose(found[:, :5], table_of(graph, normalise="l2"), atol=1e-6)
    if structure:
        np.testing.assert_allclose(found[:, 6:], graph.adjacency().toarray())


def test_mass_does_not_read_a_memory_map_whole(tmp_path):
    with pytest.raises(InputError, match="memory-mapped"):
        node_features(graph_with(in_form(features(), "memmap", tmp_path)), mass=True)


# ------------------------------------------------------------------------------------------ structure alone


def test_pagerank_is_the_stationary_walk():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 12, (2, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = Graph.from_edge_index(edges, num_nodes=14)
    dense = graph.adjacency().toarray()
    walk = np.where(dense.sum(1, keepdims=True) > 0, dense / np.maximum(dense.sum(1, keepdims=True), 1), 1 / 14)
    exact = np.linalg.solve(np.eye(14) - 0.85 * walk.T, np.full(14, 0.15 / 14))
    np.testing.assert_allclose(pagerank(graph), exact, atol=1e-4)
    assert pagerank(graph).sum() == pytest.approx(1)


def test_structure_tells_the_sides_of_a_bipartite_graph():
    left, right = np.arange(6), np.arange(6, 14)
    edges = np.array([(a, b) for a in left for b in right]).T
    graph = with_structure(Graph.from_edge_index(np.hstack([edges, edges[::-1]])), coordinates=2)
    assert graph.x.shape == (14, 4)
    assert graph.x.dtype == np.float32
    sides = graph.x[:, 2:] @ np.linalg.lstsq(graph.x[:, 2:], np.repeat([1.0, -1.0], [6, 8]), rcond=None)[0]
    assert (sides[:6] > 0).all()
    assert (sides[6:] < 0).all()
    again = with_structure(graph, coordinates=2)
    assert np.array_equal(again.x, graph.x)
