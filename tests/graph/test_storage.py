"""Graphs on disk: equal after a round trip, and equal whether tables are read in memory or sorted on disk."""

import json
import tracemalloc
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher import io
from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.storage import open_graph, save_graph
from gpatcher.io import write_json
from gpatcher.patches.ppr import PPR, push_patches
from gpatcher.tables.load import read_tables
from gpatcher.tables.store import store_tables


def assert_same(one, two):
    for name in ("indptr", "indices", "weights", "y"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b)
    assert (one.x is None) == (two.x is None)
    if one.x is not None:
        assert sp.issparse(one.x) == sp.issparse(two.x)
        np.testing.assert_array_equal(*(g.x.toarray() if sp.issparse(g.x) else g.x for g in (one, two)))
    assert (one.node_ids is None) == (two.node_ids is None)
    if one.node_ids is not None:
        assert list(one.node_ids) == list(two.node_ids)
    assert one.classes == two.classes
    assert one.name == two.name
    assert one.duplicate_edges == two.duplicate_edges
    assert [s.hash for s in one.splits] == [s.hash for s in two.splits]
    for fact in ("one_way_edges", "self_loops", "fingerprint", "content_hash", "m"):
        assert getattr(one, fact) == getattr(two, fact), fact


def full_graph(**changes):
    rng = np.random.default_rng(0)
    arguments = {
        "x": rng.normal(size=(50, 3)).astype(np.float32),
        "y": rng.integers(0, 3, 50),
        "weights": rng.uniform(0.5, 2, 200),
        "classes": ["red", "green", "blue"],
        "node_ids": np.array([f"n{v}" for v in range(50)], dtype=object),
        "name": "full",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        graph = Graph.from_edge_index(rng.integers(0, 50, (2, 200)), num_nodes=50, **(arguments | changes))
    split = Split(train=[0, 1, 2, 3, 4, 5], val=[7, 8], test=[9])
    return graph if graph.y is None else graph.with_splits([split, split])


VARIANTS = {
    "full": {},
    "integer ids": {"node_ids": np.arange(50) * 7},
    "plain": {"x": None, "y": None, "weights": None, "classes": None, "node_ids": None},
    "sparse": {"x": sp.random_array((50, 9), density=0.1, rng=np.random.default_rng(1), format="csr")},
    "single precision": {"weights": np.linspace(1, 2, 200, dtype=np.float32)},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(tmp_path, changes):
    graph = full_graph(**changes)
    assert save_graph(graph, tmp_path / "g") == tmp_path / "g"
    assert_same(open_graph(tmp_path / "g"), graph)
    assert not [p for p in tmp_path.iterdir() if p.name != "g"]


def test_round_trip_without_edges(tmp_path):
    with pytest.warns(InputWarning, match="no edges"):
        graph = Graph.from_edge_index(np.zeros((2, 0), int), num_nodes=3)
    save_graph(graph, tmp_path / "g")
    assert_same(open_graph(tmp_path / "g"), graph)


def test_opening_copies_nothing(tmp_path):
    graph = load_graph("rmat:n=20000,m=200000,features=50,seed=1")
    save_graph(graph, tmp_path / "g")
    assert graph.nbytes > 5_000_000
    tracemalloc.start()
    stored = open_graph(tmp_path / "g")
    assert isinstance(stored.x, np.memmap)
    assert stored.undirected() is stored
    assert stored.fingerprint == graph.fingerprint
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert not stored.indices.flags.writeable


def test_patches_of_a_stored_graph(tmp_path):
    for name, graph in (("plain", load_graph("rmat:n=500,m=2000,seed=1")), ("full", full_graph().undirected())):
        save_graph(graph, tmp_path / name)
        one, two = push_patches(open_graph(tmp_path / name), PPR(size=6)), push_patches(graph, PPR(size=6))
        np.testing.assert_array_equal(one.index, two.index)
        np.testing.assert_array_equal(one.score, two.score)


def test_load_graph_opens_a_folder(tmp_path, monkeypatch):
    graph = full_graph()
    monkeypatch.chdir(tmp_path)
    save_graph(graph, "mine")
    assert_same(load_graph("mine"), graph)
    assert_same(load_graph(str(tmp_path / "mine")), graph)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty contains no graph.*gpatcher store"):
        load_graph("empty")


# ------------------------------------------------------------------------------------------ from tables


def write_edges(path, columns):
    table = pa.table(columns)
    (pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table)(table, path)
    return path


def read_and_store(nodes, edges, folder, memory=1 << 30, **options):
    """Read the tables in memory and on disk; return both graphs and both sets of warnings."""
    graphs, messages = [], []
    for call in (
        lambda: read_tables(nodes, edges, **options),
        lambda: store_tables(nodes, edges, folder, memory=memory, **options),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            graphs.append(call())
        messages.append({str(w.message) for w in caught if "not used" not in str(w.message)})
    return graphs, messages


@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 200, 1 << 30]),
    st.sampled_from([".csv", ".parquet"]),
)
@settings(max_examples=40, deadline=None)
def test_tables_give_the_same_graph_on_disk(tmp_path_factory, seed, n, m, weighted, directed, memory, suffix):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(seed)
    columns = {"source": rng.integers(0, n, m), "target": rng.integers(0, n, m)}
    if weighted:
        columns["weight"] = rng.choice([0.1, 0.25, 3.0], m)
    edges = write_edges(folder / f"e{suffix}", columns)
    options = {"weight": "weight"} if weighted else {}
    graphs, messages = read_and_store(None, edges, folder / "g", memory, directed=directed, **options)
    assert_same(*graphs)
    assert messages[0] == messages[1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_node_table_is_kept(tmp_path, suffix):
    rng = np.random.default_rng(0)
    ids = [f"p{v:03d}" for v in rng.permutation(100)]
    labels = [None if v % 5 == 0 else "ab"[v % 2] for v in range(100)]
    nodes = write_edges(tmp_path / f"n{suffix}", {"id": ids, "label": labels, "age": rng.normal(size=100)})
    endpoints = rng.choice(ids[:90], (2, 300))
    edges = write_edges(tmp_path / f"e{suffix}", {"source": endpoints[0], "target": endpoints[1]})
    graphs, messages = read_and_store(nodes, edges, tmp_path / "g", memory=2000)
    assert_same(*graphs)
    assert messages[0] == messages[1]
    assert graphs[1].classes == ("a", "b")


def test_irregular_tables_are_read_in_memory(tmp_path):
    edges = tmp_path / "e.csv"
    edges.write_text("source,target\n" + "1,2\n" * 70_000 + "x,1\n")  # text after the first block
    graphs, _ = read_and_store(None, edges, tmp_path / "g")
    assert_same(*graphs)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("source,target\n1,\n2,3\n", {}, r"column 'target' are missing.*line 2"),
        ("source,goal\n1,2\n", {}, "no column 'target'"),
        ("source,target,w\n1,2,-1\n", {"weight": "w"}, r"not positive.*line 2"),
        ("source,target\n", {}, "no rows"),
    ],
)
def test_errors_are_those_of_read_tables(tmp_path, text, options, message):
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        store_tables(None, tmp_path / "e.csv", tmp_path / "g", **options)
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]


def test_unknown_endpoint_is_named(tmp_path):
    nodes = write_edges(tmp_path / "n.csv", {"id": [1, 2], "label": ["a", "b"]})
    edges = write_edges(tmp_path / "e.csv", {"source": [1, 1], "target": [2, 9]})
    with pytest.raises(InputError, match=r"not in .*n.csv, the first on line 3 \(9\)"):
        store_tables(nodes, edges, tmp_path / "g")


# ------------------------------------------------------------------------------------------ errors


def test_folder_in_use_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for call in (lambda: save_graph(full_graph(), tmp_path), lambda: save_graph(full_graph(), tmp_path / "file")):
        with pytest.raises(InputError, match="exists already"):
            call()
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["indices", "weights", "x", "y", "split0_train"])
def test_damaged_file_is_named(tmp_path, name):
    save_graph(full_graph(), tmp_path / "g")
    path = tmp_path / "g" / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match=f"{name}.npy is damaged.*store the graph again"):
        open_graph(tmp_path / "g")
    np.save(path, np.arange(3.0))
    with pytest.raises(InputError, match=f"{name}.npy is damaged"):
        open_graph(tmp_path / "g")
    path.unlink()
    with pytest.raises(InputError, match=f"{name}.npy"):
        open_graph(tmp_path / "g")


def test_pickles_are_not_loaded(tmp_path):
    save_graph(full_graph(), tmp_path / "g")
    np.save(tmp_path / "g" / "y.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"y.npy is damaged"):
        open_graph(tmp_path / "g")


def test_no_bit_of_a_stored_graph_can_change_unnoticed(tmp_path):
    save_graph(full_graph(), tmp_path / "g")
    random = np.random.default_rng(0)
    for path in sorted((tmp_path / "g").iterdir()):
        whole = path.read_bytes()
        for bit in random.integers(len(whole) * 8, size=10):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(content)
            with pytest.raises(InputError, match=path.name):
                open_graph(tmp_path / "g")
        path.write_bytes(whole)
    open_graph(tmp_path / "g")


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("indptr", 1, 10**12),
        ("indptr", 0, 1),
        ("indptr", 2, -1),
        ("indices", 0, 99),
        ("indices", 1, -5),
        ("weights", 0, np.nan),
        ("weights", 1, 0),
        ("y", 0, 17),
        ("y", 0, -2),
        ("x", (0, 0), np.inf),
    ],
)
def test_the_structure_of_large_files_is_checked(tmp_path, monkeypatch, name, at, value):
    monkeypatch.setattr(io, "_SMALL_BYTES", 0)  # no file is hashed
    save_graph(full_graph(), tmp_path / "g")
    path = tmp_path / "g" / f"{name}.npy"
    array = np.load(path)
    array[at] = value
    np.save(path, array)
    with pytest.raises(InputError, match=f"{name}.npy is damaged.*store the graph again"):
        open_graph(tmp_path / "g")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9"),
        ({"format": "x"}, "graph.json does not describe a graph"),
        ({"x_shape": [2**70, 3]}, r"graph.json is damaged: graph.x_shape\[0\] must have at most 64 bits"),
        ({"x_shape": [9, 3]}, "graph.json is damaged: it lacks the array x_data"),
        ({"arrays": {}}, "graph.json is damaged: it lacks the array"),
    ],
)
def test_other_formats_are_refused(tmp_path, change, message):
    save_graph(full_graph(), tmp_path / "g")
    path = tmp_path / "g" / "graph.json"
    write_json(path, json.loads(path.read_text()) | change)
    with pytest.raises(InputError, match=message):
        open_graph(tmp_path / "g")
