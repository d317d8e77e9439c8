"""Several tables of nodes and edges: ids within a type, ends of edges, blocks of features, unseen nodes, storage."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from gpatcher.datasets.fraud import fraud_tables
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.folder import open_tables
from gpatcher.estimator.portfolio import shipped_portfolio
from gpatcher.estimator.tables import TableClassifier, keep_tables
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import open_graph, save_graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches import PPR, Hop, extract_patches
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.tables.load import load_tables
from gpatcher.tables.unseen import read_new_tables
from gpatcher.training.loop import TrainConfig

PEOPLE = pa.table({"id": [1, 2, 3, 4], "label": ["x", "y", "x", None], "age": [30, 40, 50, 60]})
DEVICES = pa.table({"id": ["a", "b"], "system": ["ios", "android"]})
USES = pa.table({"source": [1, 2, 3, 4], "target": ["a", "a", "b", "b"], "hours": [1.0, 2.0, 3.0, 4.0]})
PAID = pa.table({"source": [1, 1, 2], "target": [2, 3, 4], "amount": [10.0, 20.0, 30.0]})
NODES, EDGES = {"person": PEOPLE, "device": DEVICES}, {"uses": USES, "paid": PAID}
FAST = {"patches": PPR(size=4), "train": TrainConfig(epochs=3)}


def load(nodes=NODES, edges=EDGES, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_tables(nodes, edges, **options)


def test_the_graph_has_the_nodes_and_edges_of_all_tables():
    tables = load(directed=True)
    graph = tables.graph
    assert graph.node_ids.tolist() == ["person:1", "person:2", "person:3", "person:4", "device:a", "device:b"]
    assert graph.node_types.names == ("person", "device")
    assert graph.node_types.codes.tolist() == [0, 0, 0, 0, 1, 1]
    assert graph.y.tolist() == [0, 1, 0, -1, -1, -1]
    assert graph.of_type("uses").neighbours(0).tolist() == [4]
    assert graph.of_type("paid").neighbours(0).tolist() == [1, 2]
    assert graph.neighbours(0).tolist() == [1, 2, 4]
    assert [(link.name, link.source, link.target, link.rows) for link in tables.links] == [
        ("uses", "person", "device", 4),
        ("paid", "person", "person", 3),
    ]
    assert (tables.counts.node_rows, tables.counts.edge_rows) == (6, 7)


def test_each_type_has_its_block_of_features_and_a_column_for_the_type():
    tables = load(columns={"person.age": "raw"})
    x, names = np.asarray(tables.graph.x), tables.encoder.names()
    assert x.shape == (6, len(names))
    column = {name: x[:, j].tolist() for j, name in enumerate(names)}
    assert column["person.age"] == [30, 40, 50, 60, 0, 0]
    assert column["type = person"] == [1, 1, 1, 1, 0, 0]
    assert column["type = device"] == [0, 0, 0, 0, 1, 1]
    assert not x[:4, [name.startswith("device.") for name in names]].any()
    assert not x[4:, [name.startswith("person.") for name in names]].any()


def test_edge_columns_are_aggregated_by_type_and_direction():
    tables = load()
    names = {row.column for row in tables.columns}
    assert "person.uses: hours: mean of edges" in names
    assert "device.uses: hours: sum of edges" in names
    assert not any(name.startswith("device.paid") for name in names)
    x, features = np.asarray(tables.graph.x), tables.encoder.names()
    outgoing, incoming = (
        x[:4, features.index(f"person.paid: amount: sum of {side} edges")] for side in ("outgoing", "incoming")
    )
    assert outgoing[0] == outgoing[1] > outgoing[2] == outgoing[3]  # 30, 30, 0, 0
    np.testing.assert_allclose(np.diff(incoming), incoming[1] - incoming[0], rtol=1e-5)  # 0, 10, 20, 30


def test_an_edge_of_two_types_is_stored_once_in_the_whole():
    twice = {"knows": PAID.select(["source", "target"]), "paid": PAID}
    graph = load(PEOPLE, twice, directed=True).graph
    assert graph.stored_edges == 3 == graph.of_type("knows").stored_edges
    assert graph.node_types is None
    assert graph.node_ids.tolist() == [1, 2, 3, 4]


def test_weights_are_those_of_the_table_that_has_them():
    graph = load(weight={"paid": "amount"}, directed=True).graph
    assert graph.of_type("uses").weights is None
    assert graph.of_type("paid").weights.tolist() == [10, 20, 30]
    assert graph.weights.tolist() == [10, 20, 1, 30, 1, 1, 1]


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "words"),
    [
        (NODES, {"uses": USES.set_column(1, "target", [["a", "a", "b", "zz"]])}, {}, ["zz", "device"]),
        ({"person": PEOPLE, "firm": PEOPLE.drop(["label"])}, {"paid": PAID}, {}, ["paid", "person, firm", "--ends"]),
        (NODES, EDGES, {"ends": {"uses": ("person", "phone")}}, ["uses=person,phone", "--ends"]),
        (NODES, EDGES, {"id": {"car": "x"}}, ["id", "car", "person, device"]),
        (NODES, EDGES, {"columns": {"age": "number"}}, ["columns", "age"]),
        (NODES, EDGES, {"label": "grade"}, ["grade", "--label person="]),
        ({"person": PEOPLE, "firm": PEOPLE}, {"paid": PAID}, {"ends": {"paid": ("person", "firm")}}, ["person, firm"]),
        (NODES, EDGES, {"weight": "price"}, ["price", "uses"]),
        (NODES, EDGES, {"on_unknown_id": "add"}, ["add", "drop"]),
        ({"a b": PEOPLE}, EDGES, {}, ["a b"]),
        ({"uses": PEOPLE}, EDGES, {}, ["uses"]),
        (None, EDGES, {}, ["--nodes"]),
        ({}, EDGES, {}, ["nodes", "empty"]),
        (PEOPLE, PAID, {"id": {"person": "id"}}, ["id", "person"]),
    ],
)
def test_what_cannot_be_read_is_an_error_with_a_way_out(nodes, edges, options, words):
    with pytest.raises(InputError) as error:
        load(nodes, edges, **options)
    for word in words:
        assert word in str(error.value)


def test_edges_with_unknown_ids_are_dropped_and_counted():
    uses = USES.set_column(1, "target", [["a", "a", "b", "zz"]])
    tables = load(edges={"uses": uses, "paid": PAID}, on_unknown_id="drop")
    assert tables.counts.unknown_ids == 1
    assert tables.graph.of_type("uses").stored_edges == 6


def test_ids_that_are_not_utf_8_are_an_error_with_their_line(tmp_path):
    (tmp_path / "uses.csv").write_bytes(b"source,target\n1,\xff\xfe\n")
    with pytest.raises(InputError, match=r"uses\.csv.*'target'.*UTF-8"):
        load(edges={"uses": tmp_path / "uses.csv"})


def test_files_and_tables_in_memory_give_the_same_graph(tmp_path):
    places = {}
    for name, table in {**NODES, **EDGES}.items():
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
        places[name] = tmp_path / f"{name}.csv"
    one = load({name: places[name] for name in NODES}, {name: places[name] for name in EDGES}).graph
    assert one.content_hash == load().graph.content_hash


def test_patches_of_a_type_are_those_of_the_graph_with_these_edges_alone():
    graph = load(directed=True).graph
    alone = Graph.from_edge_index([[0, 1, 2, 3], [4, 4, 5, 5]], num_nodes=6)
    for make in (PPR, Hop):
        for direction in ("both", "out", "in"):
            typed = extract_patches(graph, make(size=4, direction=direction, edge_type="uses"))
            expected = extract_patches(alone, make(size=4, direction=direction))
            np.testing.assert_array_equal(typed.index, expected.index)
            np.testing.assert_array_equal(typed.score, expected.score)
    with pytest.raises(InputError, match=r"'owns'.*uses, paid"):
        extract_patches(graph, PPR(edge_type="owns"))


def test_a_stored_graph_keeps_its_types(tmp_path):
    graph = load(weight={"paid": "amount"}).graph
    opened = open_graph(save_graph(graph, tmp_path / "graph"))
    assert opened.content_hash == graph.content_hash
    assert list(opened.relations) == ["uses", "paid"]
    np.testing.assert_array_equal(opened.of_type("paid").weights, graph.of_type("paid").weights)
    assert opened.node_types.labelled == "person"
    np.testing.assert_array_equal(opened.node_types.codes, graph.node_types.codes)
    assert open_graph(save_graph(load_tables(PEOPLE, PAID).graph, tmp_path / "plain")).relations == {}


NEW_PEOPLE = pa.table({"id": [7, 8], "age": [35, 45]})
NEW_DEVICES = pa.table({"id": ["c"], "system": ["ios"]})
NEW_USES = pa.table({"source": [7, 8, 1], "target": ["a", "c", "c"], "hours": [5.0, 6.0, 7.0]})


def test_unseen_nodes_of_several_types_equal_those_of_the_extended_graph(tmp_path):
    tables = load(columns={"person.age": "raw"})
    keep_tables(tables, tmp_path)
    graph, encoder = open_tables(tmp_path)
    new = {"person": NEW_PEOPLE, "device": NEW_DEVICES}, {"uses": NEW_USES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ids, x, edge_index, weights = read_new_tables(graph, *new, encoder, {"ends": tables.options.ends})
        unseen = UnseenNodes.join(graph, edge_index, x, len(ids), weights=weights, node_ids=ids)
    assert ids.tolist() == ["person:7", "person:8", "device:c"]
    assert unseen.predicted().tolist() == [0, 1]
    assert np.asarray(x)[:, encoder.names().index("person.age")].tolist() == [35, 45, 0]
    extended = unseen.extended()
    assert extended.of_type("uses").neighbours(8).tolist() == [0, 7]
    for extractor in (PPR(size=5), PPR(size=5, edge_type="uses"), Hop(size=5, edge_type="paid")):
        expected = extractor.prepare(extended)[unseen.nodes]
        np.testing.assert_array_equal(extractor.prepare_unseen(unseen).index, expected.index)


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (NEW_PEOPLE, {"uses": NEW_USES}, ["person, device", "--nodes person="]),
        ({"person": NEW_PEOPLE}, NEW_USES, ["uses, paid", "--edges uses="]),
        ({"person": NEW_PEOPLE}, {"owns": NEW_USES}, ["owns", "uses, paid"]),
        ({"person": NEW_PEOPLE}, {"uses": NEW_USES}, ["'c'", "graph"]),
        ({"person": PEOPLE}, {"uses": USES}, ["already"]),
    ],
)
def test_tables_of_unseen_nodes_that_do_not_fit_are_refused(nodes, edges, words):
    tables = load()
    with pytest.raises(InputError) as error:
        read_new_tables(tables.graph, nodes, edges, tables.encoder, {"ends": tables.options.ends})
    for word in words:
        assert word in str(error.value)


def test_a_classifier_predicts_the_type_with_labels():
    made = {name: pa.table(columns) for name, columns in fraud_tables(60).items()}
    model = TableClassifier(
        source={"uses": "person", "paid": "payer"},
        target={"uses": "device", "paid": "payee"},
        tables={"ends": {"uses": ("person", "device"), "paid": ("person", "person")}},
        classifier=GPatcherClassifier(**FAST),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(
            {"person": made["people"], "device": made["devices"]}, {"uses": made["uses"], "paid": made["payments"]}
        )
    assert model.ids_.tolist() == list(range(60))
    assert model.predict().shape == (60,)
    np.testing.assert_array_equal(model.predict([5, 3]), model.predict()[[5, 3]])


def test_members_of_the_portfolio_read_each_edge_type():
    made = {name: pa.table(columns) for name, columns in fraud_tables(100).items()}
    graph = load(
        {"person": made["people"], "device": made["devices"]},
        {"uses": made["uses"], "paid": made["payments"]},
        source={"uses": "person", "paid": "payer"},
        target={"uses": "device", "paid": "payee"},
        ends={"uses": ("person", "device"), "paid": ("person", "person")},
    ).graph
    for candidate in shipped_portfolio():
        sources = candidate.adapted(graph).settings["patches"]
        walks = [source for source in sources if source["name"] in ("ppr", "hop")]
        assert {source.get("edge_type") for source in walks} in ({None, "uses", "paid"}, set())
        assert len({str(sorted(source.items())) for source in sources}) == len(sources)


def test_fraud_shows_only_in_shared_devices():
    tables = fraud_tables(3000, seed=1)
    people, uses = tables["people"], tables["uses"]
    fraud = people["label"] == "fraud"
    known = people["label"] != ""
    share = fraud[known].mean()
    assert 0.15 < share < 0.3
    # who shares a device does the same; who pays somebody does not
    order = np.argsort(uses["device"], kind="stable")
    person, device = uses["person"][order], uses["device"][order]
    pairs = np.stack([person[:-1], person[1:]])[:, device[:-1] == device[1:]]
    paid = np.stack([tables["payments"]["payer"], tables["payments"]["payee"]])
    for ends, low, high in ((pairs, 0.6, 1.0), (paid, share - 0.05, share + 0.05)):
        ends = ends[:, known[ends].all(axis=0)]
        assert low < fraud[ends[1]][fraud[ends[0]]].mean() < high
    assert np.corrcoef(fraud[known], people["age"][known])[0, 1] == pytest.approx(0, abs=0.06)
    with pytest.raises(InputError, match="10"):
        fraud_tables(10)


def test_labels_agree_along_shared_devices_and_not_along_payments():
    made = {name: pa.table(columns) for name, columns in fraud_tables(400).items()}
    labels = [label or None for label in made["people"]["label"].to_pylist()]
    graph = load(
        {"person": made["people"].set_column(1, "label", [labels]), "device": made["devices"]},
        {"uses": made["uses"], "paid": made["payments"]},
        source={"uses": "person", "paid": "payer"},
        target={"uses": "device", "paid": "payee"},
        ends={"uses": ("person", "device"), "paid": ("person", "person")},
    ).graph
    measured = diagnose(graph, spectral=False).edge_types
    assert (measured["uses"].shared, measured["paid"].shared) == (True, False)
    assert measured["uses"].adjusted_homophily > 0.5
    assert abs(measured["paid"].adjusted_homophily) < 0.1
    # against the pairs one by one
    devices = graph.of_type("uses").adjacency().toarray()[graph.node_types.nodes("device")]
    agree = total = 0
    for row in devices:
        y = graph.y[np.flatnonzero(row)]
        y = y[y >= 0]
        agree += (y[:, None] == y).sum() - len(y)
        total += len(y) * (len(y) - 1)
    assert measured["uses"].edge_homophily == pytest.approx(agree / total)
