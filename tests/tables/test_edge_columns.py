"""Columns of the edges as columns of both ends, against sums in plain Python."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.storage import open_graph
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.load import load_tables
from gpatcher.tables.store import store_tables
from gpatcher.tables.unseen import read_new_tables

NODES = pa.table({"id": list("abcd"), "label": ["x", "y", "x", "y"], "size": [1.0, 2.0, 3.5, 5.0]})
EDGES = pa.table(
    {
        "source": ["a", "a", "b", "c", "a"],
        "target": ["b", "c", "c", "a", "b"],
        "amount": [10.0, 20.0, 30.5, None, 40.0],
        "way": ["card", "cash", "card", "card", None],
        "day": ["2020-01-01", "2020-01-03", "2020-01-05", "2020-01-07", "2020-01-10"],
        "remark": ["no words", "in common", "at all", "x1 y1", "z1 z2"],
    }
)
DAY = 86400
START = 18262 * DAY  # 2020-01-01


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_edges_are_added_up_at_both_ends():
    tables = load_tables(NODES, EDGES)
    expected = {
        "number of edges": [4, 3, 3, 0],
        "amount: mean of edges": [70 / 3, 80.5 / 3, 50.5 / 2, None],
        "amount: sum of edges": [70, 80.5, 50.5, 0],
        "way = card: mean of edges": [2 / 3, 1, 2 / 3, None],
        "day: mean of edges": [START + 4.25 * DAY, START + 13 / 3 * DAY, START + 4 * DAY, None],
    }
    assert tables.encoder.edge_columns() == list(expected)
    alone = TableEncoder.fit(
        {name: pa.chunked_array([pa.array(values, pa.float64())]) for name, values in expected.items()},
        dict.fromkeys(expected, "number"),
    )
    names = tables.encoder.names()
    x = tables.graph.x[:, [names.index(name) for name in alone.names()]]
    columns = {name: pa.chunked_array([pa.array(values, pa.float64())]) for name, values in expected.items()}
    np.testing.assert_allclose(x, alone.transform(columns), atol=1e-5)


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_directions_are_told_apart_in_a_directed_graph():
    tables = load_tables(NODES, EDGES, directed=True, edge_features=["amount"], features=[])
    assert [row.column for row in tables.columns] == tables.encoder.edge_columns()
    out, into = (tables.encoder.names().index(f"amount: sum of {side} edges") for side in ("outgoing", "incoming"))
    sums = np.array([[70, 30.5, 0, 0], [0, 50, 50.5, 0]])
    standard = (sums - sums.mean(axis=1, keepdims=True)) / sums.std(axis=1, keepdims=True)
    np.testing.assert_allclose(tables.graph.x[:, [out, into]].T, standard, atol=1e-5)


@pytest.mark.filterwarnings("ignore:graph. 1 of 5 edges repeat:gpatcher.errors.InputWarning")
def test_columns_that_are_not_used_are_named():
    with pytest.warns(InputWarning, match=r"edges: 1 column is not used: remark"):
        load_tables(NODES, EDGES)
    with pytest.warns(InputWarning, match=r"edges: 4 columns are not used: amount, way, day, remark"):
        load_tables(None, EDGES)
    with pytest.warns(InputWarning, match=r"column 'weight' becomes features of both ends; to weigh .*--weight"):
        load_tables(NODES, EDGES.select(["source", "target"]).append_column("weight", [[1.0, 2.0, 3.0, 4.0, 5.5]]))
    assert load_tables(NODES, EDGES, edge_features=[]).graph.num_features == 1
    with pytest.raises(InputError, match=r"no column 'amuont'; did you mean edge_features='amount'"):
        load_tables(NODES, EDGES, edge_features=["amuont"])


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_the_careful_path_gives_the_same(tmp_path):
    tables = load_tables(NODES, EDGES)
    unknown = pa.table({name: [*EDGES[name].to_pylist(), EDGES[name][0].as_py()] for name in EDGES.column_names})
    unknown = unknown.set_column(1, "target", pa.array([*EDGES["target"].to_pylist(), "nobody"]))
    dropped = load_tables(NODES, unknown, on_unknown_id="drop", encoder=tables.encoder)
    np.testing.assert_array_equal(dropped.graph.x, tables.graph.x)
    added = load_tables(NODES, unknown, on_unknown_id="add")
    assert added.graph.x.shape[0] == 5
    assert np.isfinite(added.graph.x).all()


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_stored_graphs_have_the_same_features(tmp_path):
    for name, table in (("nodes", NODES), ("edges", EDGES)):
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
    paths = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    store_tables(*paths, tmp_path / "stored")
    np.testing.assert_array_equal(open_graph(tmp_path / "stored").x, load_tables(*paths).graph.x)


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_unseen_nodes_have_the_same_columns(tmp_path):
    tables = load_tables(NODES, EDGES)
    encoder = TableEncoder.load(tables.encoder.save(tmp_path / "encoder.json"))
    assert encoder == tables.encoder
    # e has the edges of a
    pairs = zip(EDGES["source"].to_pylist(), EDGES["target"].to_pylist(), strict=True)
    own = pa.array([row for row, pair in enumerate(pairs) if "a" in pair])
    edges = EDGES.take(own)
    for end in ("source", "target"):
        values = ["e" if value == "a" else value for value in edges[end].to_pylist()]
        edges = edges.set_column(edges.column_names.index(end), end, pa.array(values))
    nodes = pa.table({"id": ["e"], "size": [1.0]})
    ids, x, _, _ = read_new_tables(tables.graph, nodes, edges, encoder, {})
    assert ids.tolist() == ["e"]
    np.testing.assert_allclose(x[0], tables.graph.x[0], atol=1e-6)
    with pytest.raises(InputError, match=r"edges has no column 'way'"):
        read_new_tables(tables.graph, nodes, edges.drop_columns(["way"]), encoder, {})


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_a_value_that_is_not_of_its_kind_is_named(tmp_path):
    tables = load_tables(NODES, EDGES, edge_features=["amount"])
    text = EDGES.set_column(2, "amount", pa.array(["1", "2", "much", "4", ""]))
    with pytest.raises(InputError, match=r"column 'amount' are not numbers, the first in row 2 \('much'\)"):
        load_tables(NODES, text, edge_features=["amount"], encoder=tables.encoder)


@pytest.mark.parametrize("weight", [-1.0, None, 0.0])
def test_a_bad_weight_is_named(weight):
    edges = EDGES.set_column(2, "amount", pa.array([1.0, 2.0, weight, 4.0, 5.0]))
    with pytest.raises(
        InputError, match=r"column 'amount' are missing, not positive or not finite, the first in row 2"
    ):
        load_tables(NODES, edges, weight="amount", edge_features=[])


def test_what_was_inferred_is_described():
    nodes = pa.table(
        {
            "id": range(100),
            "label": ["x", "y"] * 50,
            "views": [float(10 ** (i % 7)) + i / 7 for i in range(99)] + [1e9],
            "city": [["Rome", "Oslo", ""][i % 3] for i in range(100)],
            "key": [f"k{i}" for i in range(100)],
            "about": [f"likes {i % 10} and {i}" for i in range(100)],
        }
    )
    edges = pa.table({"source": range(99), "target": range(1, 100), "amount": np.linspace(0, 1, 99)})
    with pytest.warns(InputWarning, match="an id"):
        rows = {row[0]: row[1:] for row in load_tables(nodes, edges).describe_columns()}
    assert rows["views"] == ("number", "1", "0", "logarithmic scale")
    assert rows["city"] == ("category", "3", "33", "")
    assert rows["key"] == ("ignore", "0", "0", "an id: a different value in nearly every row")
    assert rows["about"][0] == "text"
    assert rows["amount: mean of edges"] == ("number", "1", "0", "")
