"""The answers of the service are those of the commands, bit for bit."""

import csv
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpatcher.errors import InputError
from gpatcher.estimator import classifier
from gpatcher.estimator.ensemble import AutoClassifier, load_model
from gpatcher.estimator.folder import load_run_graph
from gpatcher.estimator.portfolio import shipped_portfolio
from gpatcher.model import gpatcher
from gpatcher.model.config import ModelConfig
from gpatcher.patches import AdaptiveFilter
from gpatcher.runs import predict
from gpatcher.serve.run import ServedRun, UnknownNodeError, with_notes

TABLES = Path(__file__).parents[2] / "docs" / "data"


def rows_of(path):
    """The rows of a CSV file as a client would send them: numbers and booleans as such, null where empty."""
    words = {"True": True, "False": False, "": None}
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        {name: words[v] if v in words else float(v) if name == "age" else v for name, v in row.items()} for row in rows
    ]


def assert_equal(answers, table):
    """Answers are the rows of the command: the same floats after a round trip through JSON."""
    rows = table.to_pylist()
    assert len(answers) == len(rows) > 0
    for answer, row in zip(answers, rows, strict=True):
        chances = {name.removeprefix("probability_"): p for name, p in row.items() if name.startswith("probability_")}
        assert answer["probability"] == chances
        for name in ("id", "predicted", "confidence", "label", "part", *(["set"] if "set" in row else [])):
            assert answer[name] == row[name], name


@pytest.fixture
def predicted(command_in, tmp_path):
    """The table that `gpatcher predict` writes."""

    def predict(folder, *options):
        command_in(tmp_path, "predict", folder, "--out", "out.parquet", *options)
        return pq.read_table(tmp_path / "out.parquet")

    return predict


def test_known_nodes_are_answered_as_by_the_command(server, run_folder, predicted):
    table = predicted(run_folder, "--conformal", "0.8")
    ids = table.column("id").to_pylist()
    assert_equal(server.post({"ids": ids, "conformal": 0.8}).json()["nodes"], table)
    chosen = [17, 3, 3, 599]
    answer = server.post({"ids": [ids[i] for i in chosen]}).json()
    assert_equal(answer["nodes"], table.take(chosen).drop_columns("set"))
    assert answer["notes"] == []
    assert {one["part"] for one in server.post({"ids": ids}).json()["nodes"]} == {"train", "validation", "test", "none"}


def test_unseen_nodes_are_answered_as_by_the_command(server, run_folder, predicted):
    nodes, edges = TABLES / "new_nodes.csv", TABLES / "new_edges.csv"
    table = predicted(run_folder, "--nodes", nodes, "--edges", edges, "--conformal", "0.8")
    answer = server.post({"nodes": rows_of(nodes), "edges": rows_of(edges), "conformal": 0.8}).json()
    assert_equal(answer["nodes"], table)


def test_one_unseen_node_is_answered_as_by_the_command(server, run_folder, predicted, tmp_path):
    node = rows_of(TABLES / "new_nodes.csv")[1]
    edges = [row for row in rows_of(TABLES / "new_edges.csv") if row["source"] == node["id"]]
    pq.write_table(pa.Table.from_pylist([node]), tmp_path / "n.parquet")
    pq.write_table(pa.Table.from_pylist(edges), tmp_path / "e.parquet")
    table = predicted(run_folder, "--nodes", tmp_path / "n.parquet", "--edges", tmp_path / "e.parquet")
    for _ in range(3):  # nothing is left behind by a request
        assert_equal(server.post({"nodes": [node], "edges": edges}).json()["nodes"], table)
    # the columns count
    other = server.post({"nodes": [node | {"age": 80, "about": "need gift"}], "edges": edges}).json()["nodes"]
    assert other[0]["confidence"] != table.column("confidence")[0].as_py()


def test_a_warning_of_the_command_is_a_note(server):
    node = rows_of(TABLES / "new_nodes.csv")[1] | {"country": "Atlantis"}
    answer = server.post({"nodes": [node], "edges": [{"source": node["id"], "target": "p000"}]})
    assert answer.status_code == 200
    [note] = answer.json()["notes"]
    assert "country" in note


def test_a_node_is_explained_as_by_the_command(server, run_folder, command_in, tmp_path):
    expected = json.loads(command_in(tmp_path, "explain", run_folder, "p007", "--json").stdout)
    found = server.client.get("/explain/p007").json()
    words = found.pop("words")
    assert found == expected
    assert words[0].startswith(f"Node p007 is classed {expected['predicted']}")


NODE = rows_of(TABLES / "new_nodes.csv")[1]
EDGE = {"source": "n1", "target": "p000"}
BAD = {
    "a column is missing": ([{"id": "n1"}], [EDGE]),
    "no number": ([NODE | {"age": "old"}], [EDGE]),
    "infinite": ([NODE | {"age": 1e300}], [EDGE]),
    "no date": ([NODE | {"joined": "yesterday"}], [EDGE]),
    "in the graph": ([NODE | {"id": "p000"}], [{"source": "p000", "target": "p001"}]),
    "twice": ([NODE, NODE], [EDGE]),
    "no id": ([NODE | {"id": None}], [EDGE]),
    "ids of another type": ([NODE | {"id": 7}], [{"source": 7, "target": 8}]),
    "unknown neighbour": ([NODE], [EDGE | {"target": "nobody"}]),
    "no target": ([NODE], [{"source": "n1"}]),
    "between known nodes": ([NODE], [EDGE, {"source": "p001", "target": "p000"}]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_give_the_message_of_the_command(case, server, run_folder, command_in, tmp_path):
    nodes, edges = BAD[case]
    answer = server.post({"nodes": nodes, "edges": edges})
    assert answer.status_code == 400, answer.text
    pq.write_table(pa.Table.from_pylist(nodes), tmp_path / "nodes.parquet")
    pq.write_table(pa.Table.from_pylist(edges), tmp_path / "edges.parquet")
    shown = command_in(tmp_path, "predict", run_folder, "--nodes", "nodes.parquet", "--edges", "edges.parquet", code=2)
    expected = (
        shown.stderr.strip()
        .splitlines()[-1]
        .removeprefix("error: ")
        .replace(".parquet", "")
        .replace(f"{tmp_path}/", "")
    )
    assert answer.json() == {"detail": expected}


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ([NODE], [], "edges has the columns source, target but no rows"),
        ([NODE | {"age": 1}, NODE | {"id": "n9", "age": "x"}], [EDGE], "column 'age'"),
        ([NODE | {"age": 10**30}], [EDGE], "column 'age'"),
        ([NODE | {"age": {"years": 3}}], [EDGE], "age"),
        ([NODE | {"country": [["FR"]]}], [EDGE], "country"),
    ],
)
def test_values_that_no_table_holds(server, nodes, edges, words):
    answer = server.post({"nodes": nodes, "edges": edges})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(("level", "status"), [(0.5, 200), (0, 400), (1.5, 400), ("high", 422)])
def test_the_level_of_sets(server, level, status):
    answer = server.post({"ids": ["p000"], "conformal": level})
    assert answer.status_code == status
    assert (
        "set" in answer.json()["nodes"][0] if status == 200 else str(level) in answer.text or "conformal" in answer.text
    )


# ------------------------------------------------------------------------------------- runs of other kinds


def tables_of(ids, seed=0, weight=False):
    """Tables of a graph of two classes, a ring with chords."""
    rng = np.random.default_rng(seed)
    n = len(ids)
    y = rng.integers(0, 2, n)
    nodes = {"key": ids, "label": pa.array([None if v % 7 == 0 else "ab"[c] for v, c in enumerate(y)])}
    nodes["size"] = y + rng.normal(size=n)
    source, target = np.arange(n), (np.arange(n) + 1) % n
    chords = rng.integers(0, n, (2, n))
    ends = np.concatenate([source, chords[0]]), np.concatenate([target, chords[1]])
    edges = {"from": ids[ends[0]], "to": ids[ends[1]]}
    if weight:
        edges["strength"] = rng.random(2 * n) + 0.5
    return pa.table(nodes), pa.table(edges)


COLUMNS = {"id": "key", "source": "from", "target": "to"}


def compare(folder, new, joins, predicted, tmp_path):
    """Ask a run for all its nodes and for unseen ones, and compare both with the command."""
    (tmp_path / "shared").mkdir()
    run = ServedRun.open(folder, tmp_path / "shared")
    table = predicted(folder)
    assert_equal(run.predict_known(table.column("id").to_pylist()), table)
    pq.write_table(pa.Table.from_pylist(new), tmp_path / "n.parquet")
    pq.write_table(pa.Table.from_pylist(joins), tmp_path / "e.parquet")
    table = predicted(folder, "--nodes", tmp_path / "n.parquet", "--edges", tmp_path / "e.parquet")
    assert_equal(with_notes(run.predict_unseen, new, joins)[0], table)
    return run


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_integer_ids_weights_and_other_names(save_run, predicted, tmp_path):
    ids = np.random.default_rng(1).permutation(np.arange(-20, 180))
    options = {**COLUMNS, "weight": "strength"}
    database = "postgresql://nobody@127.0.0.1:1/none"  # where the tables came from: nothing asks it again
    folder = save_run(tmp_path / "run", *tables_of(ids, weight=True), database=database, **options)
    joins = [{"from": 1000, "to": 5, "strength": 2.0}, {"from": 1000, "to": 7, "strength": 0.5}]
    run = compare(folder, [{"key": 1000, "size": 0.5}], joins, predicted, tmp_path)
    assert run.explain("-3")["id"] == -3
    for wrong in ("1000", "03", "x", "9" * 30, "-", ""):
        with pytest.raises(UnknownNodeError, match="no node with the id"):
            run.explain(wrong)
    with pytest.raises(UnknownNodeError, match="ids 1000, 1001"):
        run.predict_known([5, 1000, 1001])
    with pytest.raises(InputError, match="are text, those of the graph are int64"):
        run.predict_known(["5"])


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_a_portfolio(save_run, predicted, tmp_path):
    members = [c for c in shipped_portfolio() if c.name in ("trees", "linear", "mixer")]
    model = AutoClassifier(quality="quick" if len(members) == 1 else "good", portfolio=members)
    ids = np.array([f"v{i}" for i in range(150)], object)
    folder = save_run(tmp_path / "run", *tables_of(ids), model=model, **COLUMNS)
    joins = [{"from": "new", "to": "v3"}, {"from": "new", "to": "newer"}, {"from": "newer", "to": "v9"}]
    new = [{"key": "new", "size": 0.5}, {"key": "newer", "size": None}]
    run = compare(folder, new, joins, predicted, tmp_path)
    assert run.explain("v3")["id"] == "v3"


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"patches": AdaptiveFilter(size=6)},  # weights of the source itself
        {"model": ModelConfig(hidden=8, readout=("ego", "mean", "labels"))},
        {"model": ModelConfig(hidden=8, rounds=3, norm="batch")},
    ],
    ids=["learned filter", "labels", "rounds"],
)
def test_models_of_all_kinds(settings, save_run, small_model, predicted, tmp_path):
    ids = np.array([f"v{i}" for i in range(120)], object)
    folder = save_run(tmp_path / "run", *tables_of(ids), model=small_model(**settings), **COLUMNS)
    joins = [{"from": "new", "to": "v3"}, {"from": "v7", "to": "new"}]
    compare(folder, [{"key": "new", "size": 0.5}], joins, predicted, tmp_path)


def test_a_generated_graph_has_positions_for_ids(small_model, predicted, tmp_path):
    from gpatcher.datasets.load import load_graph

    name = "csbm:phi=0.5,n=150,features=3"
    folder = small_model().fit(load_graph(name)).save(tmp_path / "run", {"name": name})
    new = [{"id": 150, "a": 0.5, "b": 0.25, "c": -1.0}]
    run = compare(folder, new, [{"source": 150, "target": 3}], predicted, tmp_path)
    assert run.explain("149")["id"] in (149, "149")
    with pytest.raises(UnknownNodeError, match="'150'"):
        run.explain("150")


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_a_run_that_cannot_predict_unseen_nodes_says_so(small_model, save_run, tmp_path):
    from gpatcher.model.inputs import FeatureConfig

    model = small_model(features=FeatureConfig(structure=("pagerank",)))
    ids = np.arange(100)
    folder = save_run(tmp_path / "run", *tables_of(ids), model=model, **COLUMNS)
    run = ServedRun.open(folder, tmp_path)
    assert len(run.predict_known([3, 4])) == 2
    with pytest.raises(InputError, match="pagerank"):
        run.predict_unseen([{"key": 1000, "size": 0.5}], [{"from": 1000, "to": 5}])
    before = {path.name for path in folder.rglob("*")}
    assert "logits.npy" not in before  # nothing is written into the run


def test_the_graph_is_read_only_and_the_logits_are_shared(run_folder, tmp_path, monkeypatch):
    run = ServedRun.open(run_folder, tmp_path)
    assert run.known.ready == 1
    assert (tmp_path / "logits.npy").stat().st_size >= 600 * 3 * 4
    with pytest.raises(ValueError, match="read-only"):
        run.graph.indices[0] = 0
    # a second worker maps what the first one wrote
    monkeypatch.setattr(classifier.PatchModel, "_logits", lambda *_: pytest.fail("predicted again"))
    nodes = np.arange(600)
    assert np.array_equal(ServedRun.open(run_folder, tmp_path).known[nodes], run.known[nodes])


@pytest.fixture
def in_batches(run_folder, monkeypatch):
    """A run whose graph counts as large, and what the command predicts for it: pieces of 250 in batches of 64 nodes."""
    monkeypatch.setattr(predict, "LOGITS", 250 * 3)
    for module in (classifier, gpatcher):
        monkeypatch.setattr(module, "CHUNK", 100)
    monkeypatch.setattr(classifier, "DEFAULT_BATCH", 64)
    graph = load_run_graph(run_folder)[0]
    model = load_model(run_folder, graph)
    return np.concatenate([model.decision_function(graph, nodes) for nodes in predict.piecewise(graph, 3)])


def test_nodes_of_a_large_graph_are_predicted_when_asked_for(in_batches, run_folder, tmp_path):
    run = ServedRun.open(run_folder, tmp_path)
    assert run.known.ready == 0
    nodes = np.array([599, 0, 251, 0])
    assert np.array_equal(run.known[nodes], in_batches[nodes])
    assert run.known.ready == 3 / 10  # batches of the three pieces: 4, 4 and 2
    table = {one["id"]: one for one in run.predict_known(["p251", "p599"])}
    assert list(table) == ["p251", "p599"]
    assert len(run.explain("p007")["members"]) > 1
    # a second worker goes on where the first one is
    other = ServedRun.open(run_folder, tmp_path)
    assert other.known.ready == 3 / 10
    assert np.array_equal(other.known[np.arange(600)], in_batches)
    assert run.known.ready == 1


def test_nodes_of_a_large_graph_are_predicted_in_the_background(in_batches, run_folder, tmp_path):
    known = ServedRun.open(run_folder, tmp_path).known
    known.start()
    deadline = time.monotonic() + 60
    while known.ready < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    known.close()
    assert known.ready == 1
    assert np.array_equal(np.load(tmp_path / "logits.npy"), in_batches)


def test_the_background_stops_when_the_service_does(in_batches, run_folder, tmp_path):
    known = ServedRun.open(run_folder, tmp_path).known
    known._stopped.set()
    known.start()
    known.close()
    assert not known._filler.is_alive()
    assert known.ready == 0
