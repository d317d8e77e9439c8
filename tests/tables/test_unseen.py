import numpy as np
import pyarrow as pa
import pytest

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.tables.load import load_tables
from gpatcher.tables.unseen import read_new_tables

NODES = pa.table({"id": ["a", "b", "c"], "label": ["x", "y", "x"], "age": [1.0, 2.0, 6.0]})
EDGES = pa.table({"source": ["a", "b"], "target": ["b", "c"], "w": [1.0, 2.0]})
NEW = pa.table({"age": [3.0, 4.0], "id": ["d", "e"]})
LINKS = pa.table({"source": ["d", "e"], "target": ["a", "d"], "w": [0.5, 4.0]})


def test_unseen_nodes_follow_those_of_the_graph():
    tables = load_tables(NODES, EDGES, weight="w")
    ids, x, edge_index, weights = read_new_tables(tables.graph, NEW, LINKS, tables.encoder, {"weight": "w"})
    assert ids.tolist() == ["d", "e"]
    assert edge_index.tolist() == [[3, 4], [0, 3]]
    assert weights.tolist() == [0.5, 4.0]
    np.testing.assert_array_equal(x, tables.encoder.transform({"age": NEW["age"]}))


def test_digits_are_text_where_the_graph_has_text_ids(tmp_path):
    graph = load_tables(NODES, EDGES.select(["source", "target"]), features=[]).graph
    (tmp_path / "new.csv").write_text("id\n07\n8\n")
    (tmp_path / "links.csv").write_text("source,target\n07,8\n")
    ids, x, edge_index, weights = read_new_tables(graph, tmp_path / "new.csv", tmp_path / "links.csv", None, {})
    assert ids.tolist() == ["07", "8"]
    assert edge_index.tolist() == [[3], [4]]
    assert x is None
    assert weights is None


def test_features_of_arrays_are_columns_of_numbers():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], x=np.eye(2, dtype=np.float32))
    links = pa.table({"source": [7], "target": [1]})
    nodes = pa.table({"id": [7], "u": [0.5], "v": [3]})
    ids, x, edge_index, _ = read_new_tables(graph, nodes, links, None, {})
    assert (ids.tolist(), x.tolist(), edge_index.tolist()) == ([7], [[0.5, 3.0]], [[2], [1]])
    with pytest.raises(InputError, match="1 column of numbers beside the id, the graph has 2 features"):
        read_new_tables(graph, nodes.drop_columns("u"), links, None, {})
    with pytest.raises(InputError, match="computed from its edges"):
        read_new_tables(graph, nodes, links, None, {"edges": "edges.csv"})


@pytest.mark.parametrize(
    ("nodes", "links", "message"),
    [
        ({"id": ["d", "a"]}, {}, r"1 of 2 values in column 'id' are in the graph already, the first in row 1 \('a'\)"),
        ({"id": [1, 2]}, {}, "column 'id' are int64, those of the graph are text, such as 'a'"),
        ({"id": ["d", "d"]}, {}, r"'d' \(row 0, row 1\)"),
        ({}, {"target": ["a", "z"]}, r"'target' are neither in nodes nor in the graph, the first in row 1 \('z'\)"),
        ({}, {"source": [None, "e"]}, "'source' are missing, the first in row 0"),
        ({"age": ["3", "old"]}, {}, r"'age' are not numbers, the first in row 1 \('old'\); correct them or leave the"),
        ({"age": None}, {}, "no column 'age', which the model was trained with"),
    ],
)
def test_mistakes_are_named(nodes, links, message):
    tables = load_tables(NODES, EDGES.select(["source", "target"]))
    new = {name: column for name, column in (NEW.to_pydict() | nodes).items() if column is not None}
    with pytest.raises(InputError, match=message):
        read_new_tables(tables.graph, pa.table(new), pa.table(LINKS.to_pydict() | links), tables.encoder, {})
