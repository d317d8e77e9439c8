import dataclasses
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gpatcher.errors import InputError, InputWarning, some
from gpatcher.graph import checks
from gpatcher.graph.checks import encode_labels
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split

# hypothesis must not time the first call, which compiles
checked = settings(deadline=None, max_examples=40)


@st.composite
def edge_lists(draw):
    """A number of nodes and an edge index, possibly with duplicates and self-loops."""
    n = draw(st.integers(1, 12))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    return n, np.array(edges, np.int64).reshape(-1, 2).T


def quiet(function, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return function(*arguments, **keywords)


def build(*arguments, **keywords) -> Graph:
    return quiet(Graph.from_edge_index, *arguments, **keywords)


def dense(n, edges, weights=None) -> np.ndarray:
    """Dense oracle: the weighted adjacency with duplicates added; its support is the unweighted one."""
    out = np.zeros((n, n))
    np.add.at(out, (edges[0], edges[1]), 1.0 if weights is None else weights)
    return out


def dense_normalised(adjacency, self_loops=False) -> np.ndarray:
    both = np.maximum(adjacency, adjacency.T)
    np.fill_diagonal(both, float(self_loops))
    degree = both.sum(axis=1)
    scale = np.array([d**-0.5 if d else 0.0 for d in degree])
    return scale[:, None] * both * scale


def assert_same(a: Graph, b: Graph) -> None:
    for name in ("indptr", "indices", "weights", "y"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        assert left is None or (np.array_equal(left, right) and left.dtype == right.dtype), name
    assert a.classes == b.classes
    assert [s.hash for s in a.splits] == [s.hash for s in b.splits]


PATH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])


# --------------------------------------------------------------------------------------- adjacency


@checked
@given(edge_lists())
def test_csr_equals_the_dense_oracle(drawn):
    n, edges = drawn
    graph = build(edges, num_nodes=n)
    oracle = dense(n, edges)
    assert np.array_equal(graph.adjacency().toarray(), oracle > 0)
    assert graph.indptr[0] == 0
    assert graph.indptr[-1] == graph.indices.size == graph.stored_edges == np.count_nonzero(oracle)
    for v in range(n):
        assert graph.neighbours(v).tolist() == np.flatnonzero(oracle[v]).tolist()
    assert graph.duplicate_edges == edges.shape[1] - np.count_nonzero(oracle)
    assert graph.self_loops == np.count_nonzero(np.diag(oracle))
    assert graph.one_way_edges == np.count_nonzero((oracle > 0) & ~(oracle.T > 0))
    assert graph.is_directed == (not np.array_equal(oracle > 0, oracle.T > 0))
    assert graph.m == np.count_nonzero(np.triu(oracle + oracle.T))


@checked
@given(edge_lists(), st.data())
def test_weights_of_duplicates_add(drawn, data):
    n, edges = drawn
    # sums of quarters are exact, so the order does not matter
    quarters = st.lists(st.integers(1, 40), min_size=edges.shape[1], max_size=edges.shape[1])
    weights = np.array(data.draw(quarters), float) / 4
    graph = build(edges, num_nodes=n, weights=weights)
    assert np.array_equal(graph.adjacency().toarray(), dense(n, edges, weights))


@checked
@given(edge_lists(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(drawn, random):
    n, edges = drawn
    order = list(range(edges.shape[1]))
    random.shuffle(order)
    weights = np.arange(1.0, edges.shape[1] + 1)
    assert_same(build(edges, num_nodes=n), build(edges[:, order], num_nodes=n))
    assert_same(build(edges, num_nodes=n, weights=weights), build(edges[:, order], num_nodes=n, weights=weights[order]))


@checked
@given(edge_lists())
def test_undirected_takes_the_larger_weight(drawn):
    n, edges = drawn
    weights = 1.0 + np.arange(edges.shape[1]) % 5
    graph = build(edges, num_nodes=n, weights=weights)
    oracle = dense(n, edges, weights)
    both = graph.undirected()
    assert np.array_equal(both.adjacency().toarray(), np.maximum(oracle, oracle.T))
    assert not both.is_directed
    assert both.undirected() is both
    assert np.array_equal(graph.degrees(), np.maximum(oracle, oracle.T).sum(axis=1))
    unweighted = build(edges, num_nodes=n).undirected()
    assert np.array_equal(unweighted.adjacency().toarray(), (oracle + oracle.T) > 0)
    alone = (oracle + oracle.T - np.diag(2 * np.diag(oracle))).sum(axis=1) == 0
    assert graph.isolated.tolist() == np.flatnonzero(alone).tolist()


def test_undirected_returns_an_undirected_graph_itself():
    graph = Graph.from_edge_index(PATH)
    assert graph.undirected() is graph
    lopsided = Graph.from_edge_index(PATH, weights=[1.0, 2.0, 1.0, 1.0])
    assert lopsided.is_directed
    assert lopsided.one_way_edges == 2


@pytest.mark.parametrize("self_loops", [False, True])
@checked
@given(drawn=edge_lists(), weighted=st.booleans())
def test_normalised_equals_the_dense_formula(self_loops, drawn, weighted):
    n, edges = drawn
    weights = 0.5 + np.arange(edges.shape[1]) % 3 if weighted else None
    graph = build(edges, num_nodes=n, weights=weights)
    before = graph.adjacency().toarray(), graph.undirected().adjacency().toarray()
    matrix = graph.normalised(self_loops=self_loops)
    oracle = dense(n, edges, weights)
    expected = dense_normalised(oracle if weighted else (oracle > 0).astype(float), self_loops)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12, atol=1e-15)
    assert abs(np.linalg.eigvalsh(matrix.toarray())).max() <= 1 + 1e-12
    assert matrix.nnz == np.count_nonzero(expected)
    # the graph is unchanged
    assert np.array_equal(graph.adjacency().toarray(), before[0])
    assert np.array_equal(graph.undirected().adjacency().toarray(), before[1])


@pytest.mark.parametrize("self_loops", [False, True])
@checked
@given(drawn=edge_lists())
def test_adjacency_of_the_undirected_graph(self_loops, drawn):
    n, edges = drawn
    graph = build(edges, num_nodes=n)
    oracle = dense(n, edges) + dense(n, edges).T > 0
    np.fill_diagonal(oracle, self_loops)
    matrix = graph.adjacency(np.float32, self_loops=self_loops)
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix.toarray(), oracle)
    assert np.array_equal(graph.adjacency().toarray(), dense(n, edges) > 0)


@checked
@given(edge_lists(), st.randoms(use_true_random=False))
def test_normalised_is_equivariant_to_node_order(drawn, random):
    n, edges = drawn
    ids = list(range(n))
    random.shuffle(ids)
    ids = np.array(ids)
    plain = build(edges, num_nodes=n).normalised().toarray()
    moved = build(ids[edges], num_nodes=n).normalised().toarray()
    np.testing.assert_allclose(moved[np.ix_(ids, ids)], plain, rtol=1e-12)


def test_isolated_nodes_have_zero_rows():
    graph = build([[0, 1, 3], [1, 0, 3]], num_nodes=5)
    matrix = graph.normalised().toarray()
    assert np.isfinite(matrix).all()
    assert not matrix[[2, 3, 4]].any()
    assert graph.isolated.tolist() == [2, 3, 4]
    looped = graph.normalised(self_loops=True).toarray()
    assert looped[[2, 3, 4], [2, 3, 4]].tolist() == [1, 1, 1]


def test_normalised_in_float32():
    matrix = Graph.from_edge_index(PATH).normalised(dtype=np.float32)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.toarray(), Graph.from_edge_index(PATH).normalised().toarray(), rtol=1e-6)


# ------------------------------------------------------------------------------- dtypes, sharing, immutability


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_offsets_are_int64_and_ids_int32(dtype):
    graph = Graph.from_edge_index(PATH.astype(dtype))
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    both = Graph.from_edge_index(PATH[:, :3].astype(dtype)).undirected()
    assert (both.indptr.dtype, both.indices.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize("form", [PATH.tolist(), tuple(PATH), tuple(PATH.tolist()), torch.tensor(PATH), PATH[:, ::1]])
def test_edge_index_may_be_a_list_tuple_or_tensor(form):
    assert_same(Graph.from_edge_index(form), Graph.from_edge_index(PATH))


def test_edge_index_may_be_strided_and_read_only():
    pairs = np.ascontiguousarray(PATH.T)
    pairs.flags.writeable = False
    assert_same(Graph.from_edge_index(pairs.T), Graph.from_edge_index(PATH))


def test_features_are_shared_not_copied(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    assert np.shares_memory(Graph.from_edge_index(PATH, x=x).x, x)

    tensor = torch.ones(3, 2, requires_grad=True)
    assert np.shares_memory(Graph.from_edge_index(PATH, x=tensor).x, tensor.detach().numpy())

    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    held = Graph.from_edge_index(PATH, x=mapped).x
    assert isinstance(held, np.memmap)
    assert np.shares_memory(held, mapped)

    sparse = sp.csr_array(x)
    assert np.shares_memory(Graph.from_edge_index(PATH, x=sparse).x.data, sparse.data)

    whole = Graph.from_edge_index(PATH[:, :3], x=x)
    assert np.shares_memory(whole.undirected().x, x)


def test_graph_does_not_share_edges_weights_and_labels():
    y, weights, edges = np.array([0, 1, 0]), np.ones(4), PATH.copy()
    graph = Graph.from_edge_index(edges, y=y, weights=weights)
    y[0], weights[0], edges[0, 0] = 1, 9, 2
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.weights.tolist() == [1, 1, 1, 1]
    assert graph.neighbours(0).tolist() == [1]


def test_graph_is_frozen():
    graph = Graph.from_edge_index(PATH, y=[0, 1, 0], weights=np.ones(4), splits=[Split([0, 1], [2], [])])
    for name in ("indptr", "indices", "weights", "y", "x", "splits", "name"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(graph, name, None)
    for array in (graph.indptr, graph.indices, graph.weights, graph.y, graph.splits[0].train):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_undirected_graph_is_frozen():
    both = Graph.from_edge_index([[0, 1], [1, 2]], weights=[1.0, 2.0]).undirected()
    for array in (both.indptr, both.indices, both.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_counts_and_repr():
    x = np.zeros((3, 5), np.float32)
    graph = Graph.from_edge_index(PATH, x=x, y=[0, 1, -1], name="path", splits=[Split([0, 1], [], [])])
    assert (graph.n, graph.m, graph.num_features, graph.num_classes) == (3, 2, 5, 2)
    assert graph.classes == ("0", "1")
    assert graph.nbytes == 4 * 8 + 4 * 4 + 3 * 8 + 60
    assert repr(graph) == "Graph('path': 3 nodes, 4 stored edges, 5 features, 2 classes, 1 split)"
    sparse = Graph.from_edge_index(PATH, x=sp.csr_array(np.eye(3)))
    assert sparse.nbytes == 4 * 8 + 4 * 4 + sparse.x.data.nbytes + sparse.x.indices.nbytes + sparse.x.indptr.nbytes


def test_number_of_nodes_is_inferred():
    assert Graph.from_edge_index(PATH).n == 3
    assert Graph.from_edge_index(PATH, y=[0, 0, 0, 0]).n == 4
    assert Graph.from_edge_index(PATH, x=np.zeros((5, 1))).n == 5
    assert Graph.from_edge_index(PATH, num_nodes=6).n == 6


def test_facts_are_not_measured_again():
    measured = Graph.from_edge_index([[0, 1], [1, 2]], y=[0, 1, 0])
    facts = {"one_way_edges": 7, "self_loops": 5, "fingerprint": "abc"}
    graph = dataclasses.replace(measured, facts=facts)
    assert {name: getattr(graph, name) for name in facts} == facts
    assert graph.is_directed
    copy = graph.with_splits([Split([0, 1], [2], [])]).with_features(np.eye(3))
    assert {name: getattr(copy, name) for name in facts} == facts


def test_facts_are_dropped_by_replace():
    graph = Graph.from_edge_index([[0, 1], [1, 2]])
    stale = dataclasses.replace(graph, facts={"one_way_edges": 0, "self_loops": 5, "fingerprint": "abc"})
    fresh = dataclasses.replace(stale, weights=np.array([1.0, 2.0]))
    assert (fresh.one_way_edges, fresh.self_loops) == (2, 0)
    assert fresh.fingerprint not in (graph.fingerprint, "abc")


# ---------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("edges", "keywords", "message"),
    [
        (
            [[0, 5, 1, 7], [1, 0, 0, 1]],
            dict(num_nodes=3),
            "2 edges have a source outside 0 to 2: 5, 7, the first at edge 1;",
        ),
        ([[0, 1], [1, -1]], {}, "1 edge has a target outside 0 to 1: -1, the first at edge 1; ids count from 0"),
        ([[0, 1]], {}, r"edge_index must have shape \(2, m\), got \(1, 2\)"),
        ([[0, 1], [1, 2], [2, 0]], {}, "looks transposed, pass edge_index.T"),
        ([0, 1], {}, r"got \(2,\)"),
        ([[0, 1], [1]], {}, "edge_index is ragged"),
        (([0, 1], [1]), {}, r"as many targets as sources, got shapes \(2,\) and \(1,\)"),
        ([[0.0, 1.0], [1.0, 0.0]], {}, r"edge_index must be integers, got dtype float64; convert with .astype"),
        ([[0.0, np.nan], [1.0, 0.0]], {}, "1 of them are NaN"),
        ([["a"], ["b"]], {}, "edge_index must be integers, got dtype <U1"),
        ([[True], [False]], {}, "edge_index must be integers, got dtype bool"),
        ([[], []], {}, "the graph is empty: num_nodes must be at least 1, got 0"),
        (PATH, dict(num_nodes=0), "num_nodes must be at least 1, got 0"),
    ],
)
def test_edge_errors(edges, keywords, message):
    with pytest.raises(InputError, match=message):
        Graph.from_edge_index(edges, **keywords)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, np.nan, 1, np.inf], "2 weights are not finite: nan at edge 1; replace"),
        ([1, 1, -2, 1], r"1 weight is negative: -2.0 at edge 2; the normalised adjacency needs positive weights"),
        ([1, 1, 0, 0], "2 weights are zero: 0.0 at edge 2; .*remove the edges"),
        ([1, 1], r"weights must have shape \(4,\), one per edge, got \(2,\)"),
        (["a", "b", "c", "d"], "weights must be numbers, got dtype <U1"),
        ([[1], [1, 2], [1], [1]], "weights is ragged"),
    ],
)
def test_weight_errors(weights, message):
    with pytest.raises(InputError, match=message):
        Graph.from_edge_index(PATH, weights=weights)


def test_integer_weights_become_float64_and_float32_is_kept():
    assert Graph.from_edge_index(PATH, weights=[1, 2, 3, 4]).weights.dtype == np.float64
    assert Graph.from_edge_index(PATH, weights=np.ones(4, np.float32)).weights.dtype == np.float32


def features_with(value, form, tmp_path):
    x = np.ones((3, 4))
    x[1, 2] = value
    x[2, 0] = np.nan
    if form == "sparse":
        x[0] = 0  # an empty row, so that rows and offsets differ
        return sp.csr_array(x)
    if form == "coo":
        return sp.coo_matrix(x)
    if form == "mapped":
        np.save(tmp_path / "x.npy", x)
        return np.load(tmp_path / "x.npy", mmap_mode="r")
    if form == "torch":
        return torch.tensor(x)
    return x.astype(form)


@pytest.mark.parametrize("form", ["float64", "float32", "float16", "torch", "mapped", "sparse", "coo"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("block", [1, 1 << 24])
def test_features_must_be_finite(value, form, block, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK_BYTES", block)
    with pytest.raises(InputError, match=f"2 values that are not finite, the first {value} at row 1, column 2; impute"):
        Graph.from_edge_index(PATH, x=features_with(value, form, tmp_path))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1.0, 2.0, 3.0], r"x must have shape \(n, d\), got \(3,\); pass x.reshape\(-1, 1\)"),
        (np.zeros((3, 1, 1)), r"got \(3, 1, 1\)"),
        (np.zeros((4, 1)), "4 rows, but the graph has 3 nodes"),
        ([[1.0], [2.0, 3.0], [4.0]], "x is ragged"),
        ([["a"], ["b"], ["c"]], "x must be numeric, got dtype <U1; encode text"),
        (np.array([[1], [None], [2]], dtype=object), "x must be numeric, got dtype object"),
        (torch.eye(3).to_sparse(), "x is a sparse tensor; pass a scipy.sparse matrix"),
    ],
)
def test_feature_errors(x, message):
    with pytest.raises(InputError, match=message):
        Graph.from_edge_index(PATH, x=x, num_nodes=3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16"])
def test_feature_dtype_is_kept(dtype):
    assert Graph.from_edge_index(PATH, x=np.ones((3, 2), dtype)).x.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([0, 1], None, r"y must have shape \(3,\), one label per node, got \(2,\)"),
        ([[0], [1], [0]], None, r"got \(3, 1\)"),
        ([0, -2, -3], None, "2 labels are below -1: -2 at node 1; classes count from 0"),
        ([0, 1, 2], ["a", "b"], "label 2 has no name: only 2 classes are named"),
        ([0, 1, 9], None, "label 9 in a graph of 3 nodes; number the classes 0, 1, 2"),
        ([0.0, 1.0, np.nan], None, r"y \(labels\) must be integers, got dtype float64; 1 of them are NaN"),
        (["a", "b", "a"], None, r"y \(labels\) must be integers, got dtype <U1"),
    ],
)
def test_label_errors(y, classes, message):
    with pytest.raises(InputError, match=message):
        Graph.from_edge_index(PATH, y=y, classes=classes, num_nodes=3)


def test_boolean_labels_are_two_classes():
    graph = Graph.from_edge_index(PATH, y=[True, False, True])
    assert graph.y.tolist() == [1, 0, 1]


def test_graph_without_labels():
    graph = Graph.from_edge_index(PATH, name="bare")
    assert graph.num_classes == 0
    with pytest.raises(InputError, match="bare has no labels; pass y"):
        graph.labels()
    with pytest.raises(InputError, match="bare has no labels"):
        graph.with_splits([Split([0], [1], [2])])


def test_labels_all_unknown_warn():
    with pytest.warns(InputWarning, match="no node has a label"):
        graph = Graph.from_edge_index(PATH, y=[-1, -1, -1])
    with pytest.raises(InputError, match="has no labels"):
        graph.labels()


def test_empty_class_warns():
    with pytest.warns(InputWarning, match="path: 1 of 3 classes have no node: 1"):
        Graph.from_edge_index(PATH, y=[0, 2, 0], name="path")


def test_duplicates_are_counted_and_warned():
    edges = [[0, 0, 0, 1, 1], [1, 1, 1, 0, 0]]
    with pytest.warns(InputWarning, match="pair: 3 of 5 edges repeat another one; they were merged into one"):
        graph = Graph.from_edge_index(edges, name="pair")
    assert (graph.duplicate_edges, graph.m, graph.weights) == (3, 1, None)
    with pytest.warns(InputWarning, match="merged, their weights added"):
        graph = Graph.from_edge_index(edges, weights=[1, 2, 3, 4, 5])
    assert graph.weights.tolist() == [6, 9]


def test_self_loops_are_kept_and_warned():
    with pytest.warns(InputWarning, match="2 edges join a node to itself: kept"):
        graph = Graph.from_edge_index([[0, 1, 0, 1], [0, 1, 1, 0]])
    assert graph.self_loops == 2
    assert graph.neighbours(0).tolist() == [0, 1]
    assert graph.m == 3


def test_no_edges_warns():
    with pytest.warns(InputWarning, match="no edges, so all 3 nodes are isolated"):
        graph = Graph.from_edge_index([[], []], num_nodes=3)
    assert graph.m == 0
    assert not graph.normalised().toarray().any()


def test_warnings_point_at_the_caller():
    with pytest.warns(InputWarning) as caught:
        Graph.from_scipy(sp.coo_array((3, 3)))
    assert caught[0].filename == __file__


def test_some_lists_five_values():
    assert some([1, 2]) == "1, 2"
    assert some(range(7)) == "0, 1, 2, 3, 4, ... (7 in all)"


@pytest.mark.parametrize(
    ("values", "y", "classes"),
    [
        (["b", None, "a", float("nan")], [1, -1, 0, -1], ("a", "b")),
        ([10, 2, 10], [1, 0, 1], ("2", "10")),
        (["b", 1], [1, 0], ("1", "b")),
        ([None], [-1], ()),
    ],
)
def test_encode_labels(values, y, classes):
    assert encode_labels(values)[0].tolist() == y
    assert encode_labels(values)[1] == classes


# ---------------------------------------------------------------------------------------------- splits


def test_split_from_ids_and_masks():
    masks = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], bool)
    ids = Split([2, 0], [1], [3])
    assert ids.train.tolist() == [0, 2]
    assert ids.sizes == (2, 1, 1)
    assert Split(*masks).hash == Split(*torch.tensor(masks)).hash == ids.hash


def test_split_hash_depends_on_each_part():
    splits = [
        Split([0, 1], [2], [3]),
        Split([0], [1, 2], [3]),
        Split([0, 1], [3], [2]),
        Split([0, 1], [2, 3], []),
        Split([0, 1, 2], [], [3]),
    ]
    assert len({split.hash for split in splits}) == len(splits)
    assert Split([1, 0], [2], [3]).hash == splits[0].hash
    assert len(splits[0].hash) == 16


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0, 1, 2], [2, 1], [3]), "2 nodes are in both train and val: 1, 2; each node belongs to one part"),
        (([0], [1], [0]), "1 node is in both train and test: 0"),
        (([0], [1], [1]), "1 node is in both val and test: 1"),
        (([0, 0, 1], [2], [3]), "train lists 1 node more than once: 0"),
        (([0], [-1], [3]), "val contains the negative node id -1"),
        (([], [1], [3]), "the split has no training node"),
        (([[0, 1]], [2], [3]), r"train must be one-dimensional, got shape \(1, 2\); pass one Split per column"),
        (([0.5], [1], [2]), "train must be integers, got dtype float64"),
    ],
)
def test_split_errors(parts, message):
    with pytest.raises(InputError, match=message):
        Split(*parts)


def test_split_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Split([0], [1], [2]).train = np.array([1])


def test_split_beyond_the_graph():
    with pytest.raises(InputError, match=r"path, split 1: test has 2 node ids outside the graph: 3, 7; .* 0 to 2"):
        Graph.from_edge_index(
            PATH, y=[0, 1, 0], name="path", splits=[Split([0, 1], [2], []), Split([0, 1], [2], [3, 7])]
        )


def test_training_node_without_label():
    with pytest.raises(InputError, match=r"split 0: 1 training node has no label \(-1\): 2; remove them from train"):
        Graph.from_edge_index(PATH, y=[0, 1, -1], splits=[Split([0, 1, 2], [], [])])
    with pytest.warns(InputWarning, match="1 node of val without a label cannot be scored: 2"):
        Graph.from_edge_index(PATH, y=[0, 1, -1], splits=[Split([0, 1], [2], [])])


def test_class_missing_from_train_warns():
    with pytest.warns(InputWarning, match=r"split 0: 1 of 2 classes have no training node .*: odd; a stratified"):
        Graph.from_edge_index(PATH, y=[0, 1, 0], classes=["even", "odd"], splits=[Split([0, 2], [1], [])])


# ------------------------------------------------------------------------------ other libraries


@checked
@given(edge_lists(), st.booleans())
def test_round_trips_keep_the_adjacency(drawn, weighted):
    n, edges = drawn
    weights = 2.0 + np.arange(edges.shape[1]) if weighted else None
    graph = build(edges, num_nodes=n, weights=weights)
    for back in (
        quiet(Graph.from_pyg, graph.to_pyg()),
        quiet(Graph.from_scipy, graph.to_scipy()),
        quiet(Graph.from_networkx, graph.to_networkx()),
    ):
        assert np.array_equal(back.adjacency().toarray(), graph.adjacency().toarray())
        # without edges, weights cannot be recognised
        assert not edges.size or (back.weights is None) == (graph.weights is None)


def full_graph(x) -> Graph:
    splits = [Split([0, 1], [2], []), Split([1, 2], [], [0])]
    return Graph.from_edge_index(PATH, x=x, y=[0, 1, 0], splits=splits)


@pytest.mark.parametrize("sparse", [False, True])
def test_pyg_round_trip_keeps_everything(sparse):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = full_graph(sp.csr_array(x) if sparse else x)
    data = graph.to_pyg()
    assert data.num_nodes == 3
    assert data.train_mask.shape == (3, 2)
    back = Graph.from_pyg(data)
    assert_same(back, graph)
    assert np.array_equal(back.x, x)
    data.x[0, 0], data.y[0] = 9, 1  # the tensors are copies
    assert x[0, 0] == 0
    assert graph.y[0] == 0


def test_pyg_one_dimensional_masks_and_column_labels():
    mask = torch.eye(3, dtype=torch.bool)
    data = Data(
        edge_index=torch.tensor(PATH),
        y=torch.tensor([[0], [0], [0]]),
        num_nodes=3,
        train_mask=mask[0],
        val_mask=mask[1],
        test_mask=mask[2],
    )
    graph = Graph.from_pyg(data, name="tiny")
    assert graph.name == "tiny"
    assert graph.y.tolist() == [0, 0, 0]
    assert graph.splits[0].hash == Split([0], [1], [2]).hash
    del data.test_mask
    with pytest.raises(InputError, match="train_mask but not all of"):
        Graph.from_pyg(data)
    with pytest.raises(InputError, match="no edge_index"):
        Graph.from_pyg(Data(x=torch.ones(3, 1)))


def test_scipy_values_are_weights_unless_all_are_one():
    matrix = sp.csr_matrix(np.array([[0, 2.0], [1.0, 0]]))
    assert Graph.from_scipy(matrix).weights.tolist() == [2, 1]
    assert Graph.from_scipy(sp.csc_array(np.array([[0, 1], [1, 0]]))).weights is None
    assert Graph.from_scipy(sp.coo_array(np.array([[False, True], [True, False]]))).weights is None


def test_scipy_errors():
    with pytest.raises(InputError, match=r"square, got shape \(2, 3\)"):
        Graph.from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(InputError, match="must be a scipy sparse matrix, got ndarray"):
        Graph.from_scipy(np.eye(2))
    with pytest.raises(InputError, match="1 weight is negative"):
        Graph.from_scipy(sp.csr_array(np.array([[0, -1.0], [1.0, 0]])))


def test_scipy_shares_the_indices():
    graph = Graph.from_edge_index(PATH)
    assert np.shares_memory(graph.to_scipy().indices, graph.indices)


def test_networkx_names_labels_and_features():
    source = nx.Graph([("c", "a"), ("a", "b")], name="letters")
    for node, colour, size in (("a", "red", 1.0), ("b", "blue", 2.0), ("c", None, 3.0)):
        source.nodes[node].update(size=size, **({"colour": colour} if colour else {}))
    graph = Graph.from_networkx(source, label="colour", features=["size"])
    assert graph.name == "letters"
    assert graph.node_ids.tolist() == ["c", "a", "b"]
    assert graph.y.tolist() == [-1, 1, 0]
    assert graph.classes == ("blue", "red")
    assert graph.x.tolist() == [[3], [1], [2]]
    back = graph.to_networkx()
    assert nx.utils.graphs_equal(nx.Graph(back.edges), nx.Graph(source.edges))
    assert dict(back.nodes(data="label")) == {"c": None, "a": "red", "b": "blue"}
    del source.nodes["b"]["size"]
    with pytest.raises(InputError, match="node 'b' has no attribute 'size'"):
        Graph.from_networkx(source, features=["size"])


def test_networkx_keeps_directions_and_weights():
    source = nx.DiGraph()
    source.add_edge(0, 1, weight=2.0)
    graph = Graph.from_networkx(source)
    assert graph.is_directed
    assert graph.to_networkx().is_directed()
    assert graph.weights.tolist() == [2]
    source.add_edge(1, 2)  # without a weight
    assert Graph.from_networkx(source).weights is None
    assert not Graph.from_networkx(nx.Graph([(0, 1)])).to_networkx().is_directed()


def test_networkx_parallel_edges_are_merged():
    with pytest.warns(InputWarning, match="2 of 4 edges repeat"):
        graph = Graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1)]))
    assert graph.m == 1


# --------------------------------------------------------------------- unusual input


@pytest.mark.parametrize("dtype", [">i8", ">i4"])
def test_big_endian_edges(dtype):
    assert_same(Graph.from_edge_index(PATH.astype(dtype)), Graph.from_edge_index(PATH))


@pytest.mark.parametrize("dtype", ["float16", ">f8", "longdouble"])
def test_weights_of_unusual_dtype(dtype):
    assert Graph.from_edge_index(PATH, weights=np.ones(4, dtype)).weights.tolist() == [1, 1, 1, 1]


def test_bfloat16_features_are_refused():
    with pytest.raises(InputError, match=r"x .*bfloat16.*\.float\(\)"):
        Graph.from_edge_index(PATH, x=torch.ones(3, 2, dtype=torch.bfloat16))


def test_scalar_labels_are_refused():
    with pytest.raises(InputError, match="y must have shape"):
        Graph.from_edge_index(PATH, y=np.array(1))


def test_named_classes_may_outnumber_the_nodes():
    graph = build([[0, 1], [1, 0]], y=[2, 0], classes=["a", "b", "c"])
    assert graph.y.tolist() == [2, 0]


def test_masks_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="mask"):
        Split([True, False], [False, False, True], [False, False, False])


@pytest.mark.parametrize("weight", [1e-320, 1e-310, 1e-16, 1e16, 1e308])
def test_extreme_weights_are_refused(weight):
    with pytest.raises(
        InputError, match=r"1 weight is extreme: .* at edge 1; weights must lie between 1e-15 and 1e\+15"
    ):
        Graph.from_edge_index([[0, 1], [1, 0]], weights=[1.0, weight])


@pytest.mark.parametrize("kind", ["integers", "text", "fixed text", "none"])
def test_positions_are_those_of_the_ids(kind):
    rng = np.random.default_rng(0)
    numbers = rng.permutation(np.arange(-50, 150))[:100]
    text = np.array([f"n{v}ü" if v % 2 else str(v) for v in numbers], object)
    ids = {"integers": numbers, "text": text, "fixed text": text.astype(str), "none": None}[kind]
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=100, node_ids=ids)
    known = dict(zip(range(100) if ids is None else ids.tolist(), range(100), strict=True))
    asked = np.arange(-60, 160) if kind in ("integers", "none") else np.array([*text, "", "n", "zzz", "n3"], object)
    assert graph.positions(asked).tolist() == [known.get(one, -1) for one in asked.tolist()]
    assert (graph.positions(asked) >= 0).sum() == 100
