"""A cut in time: what lies after it does not reach the graph, the features or the split."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gpatcher.errors import InputError
from gpatcher.estimator.linear import LinearRegressor
from gpatcher.estimator.trees import TreesClassifier
from gpatcher.patches import Hop
from gpatcher.runs.later import LaterNodes
from gpatcher.tables.load import load_tables


def leaking(n=240, seed=0):
    """Tables in which edges after day 100 tell the class of a node: by the hub they lead to and by their amount."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    day = rng.permutation(np.arange(n) * 150 // n)
    hubs = {"id": [n, n + 1], "label": [None, None], "day": [0, 0], "size": [0.0, 0.0]}
    nodes = {"id": np.arange(n), "label": np.where(y == 1, "b", "a"), "day": day, "size": rng.normal(size=n)}
    nodes = pa.table({name: [*nodes[name].tolist(), *hubs[name]] for name in nodes})
    source, target = rng.integers(0, n, (2, 4 * n))
    when = np.maximum(day[source], day[target])
    edges = pa.table(
        {
            "source": np.append(source, np.arange(n)),
            "target": np.append(target, n + y),
            "amount": np.append(rng.normal(size=4 * n), 50.0 * y),
            "when": np.append(when, np.full(n, 120)),
        }
    )
    return nodes, edges, y


def load(nodes, edges, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_tables(nodes, edges, directed=False, **options)


def read_later(tables):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LaterNodes.read(tables)


def test_the_graph_is_that_of_tables_without_the_future():
    nodes, edges, _ = leaking()
    day = nodes["day"].to_numpy()
    past = nodes.filter(pa.array(day <= 100))
    gone = np.append(day > 100, False)
    ends = gone[edges["source"].to_numpy()] | gone[np.minimum(edges["target"].to_numpy(), len(gone) - 1)]
    kept = edges.filter(pa.array(~ends & (edges["when"].to_numpy() <= 100)))
    cut = load(nodes, edges, time="day", edge_time="when", cut=100)
    never = load(past, kept, time="day")
    assert cut.graph.content_hash == never.graph.content_hash
    np.testing.assert_array_equal(cut.graph.node_ids, never.graph.node_ids)
    assert cut.with_split().graph.splits[0].hash == never.with_split().graph.splits[0].hash
    assert (cut.cut.edges, cut.cut.later_edges) == (edges.num_rows, edges.num_rows - kept.num_rows)
    assert (cut.cut.nodes, cut.cut.later_nodes) == (nodes.num_rows, int((day > 100).sum()))
    assert f"{cut.cut.later_edges / edges.num_rows:.1%}" in cut.cut.describe()


def test_with_the_cut_the_leak_is_gone():
    nodes, edges, _ = leaking()

    def score(**options):
        tables = load(nodes, edges, time="day", features=["size"], **options).with_split()
        model = TreesClassifier(patches=Hop(size=8)).fit(tables.graph)
        return model.score(tables.graph, tables.graph.splits[0].test), tables, model

    assert score()[0] > 0.9
    accuracy, tables, model = score(edge_time="when", cut=100)
    assert accuracy < 0.75
    later = read_later(tables)
    assert (later.y >= 0).sum() == tables.cut.later_nodes
    logits = model.decision_function(later.unseen)
    assert logits.shape == (tables.cut.later_nodes, 2)


def test_later_nodes_are_written_and_scored(tmp_path):
    nodes, edges, y = leaking()
    tables = load(nodes, edges, time="day", features=["size"], edge_time="when", cut=100).with_split()
    model = TreesClassifier(patches=Hop(size=8)).fit(tables.graph)
    notes = read_later(tables).score(model, tmp_path)
    assert "Cut at 100" in notes[0]
    assert f"{tables.cut.later_nodes} labelled nodes" in notes[1]
    written = pa.parquet.read_table(tmp_path / "later.parquet")
    ids = written["id"].to_numpy()
    assert sorted(ids) == sorted(np.flatnonzero(nodes["day"].to_numpy() > 100))
    assert written["label"].to_pylist() == np.where(y[ids] == 1, "b", "a").tolist()


def test_later_nodes_of_a_regression_are_scored_too(tmp_path):
    nodes, edges, _ = leaking()
    numbers = np.arange(nodes.num_rows) / 4 - 3
    priced = nodes.set_column(1, "label", [numbers])
    tables = load(priced, edges, time="day", features=["size"], edge_time="when", cut=100, task="regression")
    tables = tables.with_split()
    later = read_later(tables)
    notes = later.score(LinearRegressor(patches=Hop(size=8)).fit(tables.graph), tmp_path)
    assert f"{tables.cut.later_nodes} labelled nodes among them: R²" in notes[1]
    written = pa.parquet.read_table(tmp_path / "later.parquet")
    assert written["label"].to_pylist() == numbers[written["id"].to_numpy()].tolist()


def test_tables_without_times_are_cut_by_their_nodes():
    nodes, edges, _ = leaking()
    devices = pa.table({"id": ["d0", "d1"]})
    people = nodes["id"].to_pylist()
    uses = pa.table({"source": people, "target": [f"d{v % 2}" for v in people]})
    tables = load(
        {"person": nodes, "device": devices},
        {"paid": edges, "uses": uses},
        time={"person": "day"},
        edge_time={"paid": "when"},
        ends={"paid": ("person", "person"), "uses": ("person", "device")},
        cut=100,
    )
    early = int((nodes["day"].to_numpy() <= 100).sum())
    assert tables.graph.n == early + 2
    assert tables.graph.of_type("uses").m == early
    assert tables.cut.later_nodes == nodes.num_rows - early
    later = read_later(tables)
    assert sorted(later.unseen.node_ids) == sorted(f"person:{v}" for v in np.flatnonzero(nodes["day"].to_numpy() > 100))


def test_dates_fractions_and_types():
    nodes, edges, _ = leaking()
    dates = (np.datetime64("2024-01-01") + nodes["day"].to_numpy()).astype("datetime64[D]")
    dated = nodes.set_column(2, "day", [dates])
    cut = load(dated, edges.drop(["when"]), time="day", cut="2024-04-10")
    assert (cut.cut.at, cut.graph.n) == ("2024-04-10", load(nodes, edges, time="day", cut=100).graph.n)
    half = load(nodes, edges, time="day", cut=0.5)
    assert abs(half.graph.n - nodes.num_rows / 2) <= 4
    typed = load({"person": nodes}, {"paid": edges}, time={"person": "day"}, edge_time={"paid": "when"}, cut="100")
    assert typed.cut.later_edges == load(nodes, edges, time="day", edge_time="when", cut=100).cut.later_edges
    assert read_later(typed).unseen.count == typed.cut.later_nodes


def test_a_wrong_value_is_named_with_its_line(tmp_path):
    nodes, edges, _ = leaking(60)
    amounts = [*["1"] * (edges.num_rows - 3), "oops", "2", "3"]
    table = edges.set_column(2, "weight", [amounts])
    for name, one in (("nodes", nodes), ("edges", table)):
        pa.csv.write_csv(one, tmp_path / f"{name}.csv")
    with pytest.raises(InputError, match=rf"edges\.csv.*weight.*line {edges.num_rows - 1}.*oops"):
        load(tmp_path / "nodes.csv", tmp_path / "edges.csv", weight="weight", edge_time="when", cut=1000)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cut": 100}, "--edge-time"),
        ({"edge_time": "when"}, "--cut"),
        ({"time": "day", "cut": "spring"}, "spring"),
        ({"time": "day", "cut": -5}, "-5"),
        ({"time": "age", "cut": 5}, "age"),
        ({"time": "label", "cut": 5}, "label"),
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(options, word):
    nodes, edges, _ = leaking(40)
    with pytest.raises(InputError) as error:
        load(nodes, edges, **options)
    assert word in str(error.value)


def test_a_missing_time_is_an_error():
    nodes, edges, _ = leaking(40)
    day = nodes["day"].to_pylist()
    nodes = nodes.set_column(2, "day", [[None, *day[1:]]])
    with pytest.raises(InputError, match=r"'day'.*missing"):
        load(nodes, edges, time="day", cut=50)
